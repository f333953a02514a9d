"""Run directories whose answers are written as letters, scored as any other run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from evalkit.core.records import RunRecord
from evalkit.dsa.json_types import JsonObject
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore
from tests.report.runs import entry

WORDS = " ".join(f"word{k}" for k in range(100))
Codes = Mapping[str, str]
"""By task, one letter per sample: + right, - wrong, ~ right but for one word in a hundred,
x failed, u reasoning without an end, c cut before anything was said, . not answered."""


def coded_run(
    path: Path,
    arms: Mapping[str, Codes],
    *,
    haystacks: Mapping[str, int] | None = None,
    metric: str = "qa_f1",
    checks: Mapping[str, JsonObject] | None = None,
    until_decided: JsonObject | None = None,
    **compare: object,
) -> RunStore:
    """A scored run.

    Args:
        path: the directory.
        arms: answers of every arm, the baseline first.
        haystacks: by task, how many the samples share; default: each has its own.
        metric: of all tasks; of ``choice`` the right letters go round.
        checks: of the servers, by arm.
        until_decided: of run.json.
        compare: settings.
    """
    store = RunStore(path)
    sizes = {task: len(codes) for task, codes in next(iter(arms.values())).items()}
    golds = {
        f"{task}/{k}": "ABCD"[k % 4] if metric == "choice" else f"gold{k} {WORDS}"
        for task, n in sizes.items()
        for k in range(n)
    }
    items = []
    for name, gold in golds.items():
        task, _, k = name.rpartition("/")
        shared = (haystacks or {}).get(task)
        cluster = f"{task} {int(k) % shared}" if shared else ""
        items.append(
            {
                "sample_id": name,
                "task": task,
                "metric": metric,
                "references": [gold],
                "cluster": cluster,
                "meta": {},
            }
        )
    path.mkdir(parents=True, exist_ok=True)
    _write(path / "items.jsonl", items)
    for arm, tasks in arms.items():
        rows = [
            _answer(f"{task}/{k}", task, code, golds[f"{task}/{k}"])
            for task, codes in tasks.items()
            for k, code in enumerate(codes)
            if code != "."
        ]
        _write(store.arm_dir(arm) / "samples.jsonl", rows)
    entries = [entry(arm, "1", 0, False) for arm in arms]
    for stored in entries:
        if checks and stored["name"] in checks:
            stored |= {"check": checks[stored["name"]], "engagement": {"verdict": "unknown: x"}}
    run = {
        "format": 1,
        "identity": {},
        "identity_sha256": "c" * 64,
        "recipe": {"compare": compare},
        "tasks": [{"name": t, "samples": n, "deviations": {}} for t, n in sizes.items()],
        "arms": entries,
        "environment": {},
        "scoring": {"mode": "strict" if metric == "choice" else "official"},
    }
    if until_decided is not None:
        run["until_decided"] = until_decided
    store.write_run(RunRecord.parse(run))
    score_run(store)
    return store


def _answer(name: str, task: str, code: str, gold: str) -> JsonObject:
    texts = {"+": gold, "-": "nothing", "~": gold.rpartition(" ")[0], "u": "<think> so", "c": ""}
    ends = {"x": "error", "c": "length", "u": "length"}
    return {
        "sample_id": name,
        "task": task,
        "prompt_sha256": "0" * 64,
        "prompt_tokens": 512,
        "completion_tokens": 4,
        "completion": texts.get(code, ""),
        "finish_reason": ends.get(code, "stop"),
        "error": "the server is gone" if code == "x" else None,
        "seconds": 0.1,
    }


def _write(path: Path, rows: list[JsonObject]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
