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
from pathlib import Path
from typing import Any

from evalkit.dsa import ReuseSchedule
from tests.paths import ROOT, TINY_MODEL
from tests.vllm_engine.server import Server
from tests.vllm_engine.small_model import save

LAYERS, CELL = 24, "needle@512"
ARMS = {
    "baseline": ("1", 0),
    "IndexCache 1/4": ("1/4", 0),
    "IndexCache 1/8": ("1/8", 0),
    "MLI k=1": ("1", 1),
    "1/4 + MLI k=1": ("1/4", 1),
}
NEEDLE = f"""
[[tasks]]
kind = "needle"
lengths = [512]
depths = [0, 25, 50, 75, 100]
repeats = REPEATS
needles = 4
value_digits = 4
key_adjectives = "{ROOT}/recipes/tiny/words/adjectives.txt"
key_nouns = "{ROOT}/recipes/tiny/words/nouns.txt"
max_new_tokens = 16
"""
LOCAL = """
[engine]
kind = "hf"
dtype = "float32"
batch_tokens = 8192
prefill_chunk = 256
indexer = "chunked"
"""
SERVED = """
[engine]
kind = "openai_server"
urls = ["http://127.0.0.1:9"]
max_requests = 4
"""


def main() -> None:
    """Start, run both, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--vllm", default=str(ROOT / ".venv-vllm" / "bin" / "python"))
    parser.add_argument("--repeats", type=int, default=12, help="needles per depth")
    args = parser.parse_args()
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
        run(args, "transformers", LOCAL, TINY_MODEL, dict.fromkeys(ARMS, ""))
        for server in servers.values():
            server.wait()
        run(args, "vllm", SERVED, model, {name: s.url for name, s in servers.items()})
    finally:
        for server in servers.values():
            server.stop()
    print(table(args.out))


def run(args: Any, name: str, engine: str, model: Path, urls: dict[str, str]) -> None:
    """One `evalkit run` over all arms."""
    text = f'model = "{model}"\n{engine}{NEEDLE.replace("REPEATS", str(args.repeats))}'
    for arm, (retention, lag) in ARMS.items():
        text += f'\n[[arms]]\nname = "{arm}"\n'
        text += f'retention = "{retention}"\n' if retention != "1" else ""
        text += f"lag = {lag}\n" if lag else ""
        if urls[arm]:
            text += f'[arms.server]\nengine = "vllm-plugin"\nurls = ["{urls[arm]}"]\nranks = 1\n'
            text += "enabled = true\n" if arm == "baseline" else ""
    recipe = args.out / f"{name}.toml"
    recipe.write_text(text)
    command = [sys.executable, "-m", "evalkit.cli", "run", str(recipe), "--out"]
    subprocess.run([*command, str(args.out / name)], check=True, cwd=ROOT)


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
