"""The demo's needles, asked of transformers and of real vLLM: the table of docs/serving.md.

    python -m tests.vllm_engine.demo_cell OUT --vllm .venv-vllm/bin/python

Runs in the environment of the project. One server per arm is started from the environment of
`make engines`, all at once; then `evalkit run` asks each engine the same prompts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.dsa import ReuseSchedule
from tests.paths import ROOT
from tests.vllm_engine.server import Server
from tests.vllm_engine.small_model import save

LAYERS = 24
ARMS = {
    "baseline": ("1", 0),
    "IndexCache 1/4": ("1/4", 0),
    "IndexCache 1/8": ("1/8", 0),
    "MLI k=1": ("1", 1),
    "1/4 + MLI k=1": ("1/4", 1),
}
DEMO = ROOT / "recipes" / "eval" / "demo.toml"
NEEDLES = next(t for t in tomllib.loads(DEMO.read_text())["tasks"] if t["kind"] == "needle")
SERVED = {"kind": "openai_server", "urls": ["http://127.0.0.1:9"], "max_requests": 4}


def main() -> None:
    """Start, run both, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--vllm", default=str(ROOT / ".venv-vllm" / "bin" / "python"))
    parser.add_argument("--repeats", type=int, default=12, help="needles per depth")
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True)
    model = save(args.out / "model")
    servers = {}
    try:
        for number, (name, arm) in enumerate(ARMS.items()):
            schedule = str(ReuseSchedule.uniform(LAYERS, *arm))
            servers[name] = Server(
                *(model, schedule, args.out / f"server-{number}"),
                *("--max-model-len", "1024"),
                dtype="float32",
                python=args.vllm,
            )
        run(args, "transformers")
        for server in servers.values():
            server.wait()
        urls = {name: server.url for name, server in servers.items()}
        run(args, "vllm", urls, model=str(model), engine=SERVED)
    finally:
        for server in servers.values():
            server.stop()
    print(table(args.out))


def run(args: Any, name: str, urls: Mapping[str, str] = {}, **changes: object) -> None:
    """One `evalkit run` of the demo's needles over all arms."""
    arms = []
    for arm, (retention, lag) in ARMS.items():
        section: dict[str, object] = {"name": arm, "retention": retention, "lag": lag}
        if arm in urls:
            enabled = {"enabled": True} if arm == "baseline" else {}
            section["server"] = {
                "engine": "vllm-plugin",
                "urls": [urls[arm]],
                "ranks": 1,
                **enabled,
            }
        arms.append(section)
    changes |= {"arms": arms, "tasks": [NEEDLES | {"repeats": args.repeats}]}
    changes |= {"compare": {"baseline": "baseline"}}
    command = [sys.executable, "-m", "evalkit.cli", "run", str(DEMO), "--out", str(args.out / name)]
    for key, value in changes.items():
        command += ["--set", f"{key}={inline(value)}"]
    subprocess.run(command, check=True, cwd=ROOT)


def inline(value: object) -> str:
    """A value in one line of TOML."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {inline(v)}' for key, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value)


def table(out: Path) -> str:
    """Scores of both, and how many answers are the same to the letter."""
    lines = ["| arm | transformers | vLLM | same answers | proved on the server |"]
    lines += ["|---|---:|---:|---:|---|"]
    records = {name: arms_of(out / name) for name in ("transformers", "vllm")}
    arms = json.loads((out / "vllm" / "run.json").read_text())["arms"]
    proved = {arm["name"]: arm["engagement"]["verdict"] for arm in arms}
    for arm in ARMS:
        one, two = records["transformers"][arm], records["vllm"][arm]
        assert one.keys() == two.keys()
        same = sum(one[k]["answer"] == two[k]["answer"] for k in one)
        scores = (sum(r["score"] for r in rows.values()) / len(rows) for rows in (one, two))
        shown = " | ".join(f"{score:.3f}" for score in scores)
        lines.append(f"| {arm} | {shown} | {same} of {len(one)} | {proved[arm]} |")
    return "\n".join(lines)


def arms_of(run: Path) -> dict[str, dict[str, Any]]:
    """Answers and scores of every arm by sample."""
    from evalkit.run.store import RunStore

    store = RunStore(run)
    answered = {}
    for arm in ARMS:
        scores = store.read_scores(arm)
        rows = store.read_samples(arm)
        answered[arm] = {
            k: {"score": row.score, "answer": rows[k].completion} for k, row in scores.items()
        }
    return answered


if __name__ == "__main__":
    main()
