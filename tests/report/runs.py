"""Made-up scored runs on disk; no model is needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from evalkit.config.run import CompareConfig
from evalkit.core.records import RunRecord
from evalkit.dsa.schedule import ReuseSchedule
from evalkit.run.store import RunStore

LAYERS = 8
SECRET = "host-17.example.internal"
SCRIPT = "<script>window.broken = true</script></script><img src=x onerror=alert(1)>"

# name, retention, lag, distilled, chance of a right answer
ARMS = (
    ("baseline", "1", 0, False, 0.97),
    ("again", "1", 0, False, 0.97),
    ("IndexCache 1/2", "1/2", 0, False, 0.96),
    ("IndexCache 1/4", "1/4", 0, False, 0.3),
    ("IndexCache 1/4 distilled", "1/4", 0, True, 0.95),
    ("MLI k=1", "1", 1, False, 0.96),
    ("1/2 + MLI k=1", "1/2", 1, False, 0.94),
)
TASKS = ("needle@512", "vt@4096", "vt@8192", "longbench/qasper", "longbench-v2/0shot")


def schedule(retention: str, lag: int) -> dict:
    found = ReuseSchedule.uniform(LAYERS, retention, lag)
    return {
        "text": str(found),
        "pattern": found.pattern,
        "retention": str(found.retention),
        "lag": found.lag,
        "lag_phase": found.lag_phase,
        "source": list(found.source),
        "layer_ids": list(found.layer_ids),
        "full_layer_ids": list(found.full_layer_ids),
    }


def entry(name: str, retention: str, lag: int, distilled: bool) -> dict:
    facts = {"indexer_sha256": "d" * 64} if distilled else {}
    return {
        "name": name,
        "model": f"/srv/{SECRET}/tiny-dsa",
        "weights_sha256": "a" * 64,
        "prompts_sha256": "b" * 64,
        "model_type": "deepseek_v32",
        "dtype": "float32",
        "device": "cpu",
        "schedule": schedule(retention, lag),
        "engagement": {"verdict": "engaged"},
        **facts,
    }


def make(path: Path, *, n: int = 40, arms=ARMS, tasks=TASKS, seed: int = 0) -> RunStore:
    """A run of `n` samples per task; the same seed gives the same bytes."""
    store = RunStore(path)
    rng = np.random.default_rng(seed)
    items = []
    for task in tasks:
        for i in range(n):
            meta = {"question": f"Secret question {i} of {task}?"}
            if task.startswith("needle"):
                meta |= {"length": 512, "depth": 25.0 * (i % 5), "haystack": i // 5}
            items.append(
                {
                    "sample_id": f"{task}/{i}",
                    "task": task,
                    "metric": "qa_f1",
                    "references": [f"gold {i}"],
                    "cluster": f"{task}/{i}",
                    "meta": meta,
                }
            )
    luck = rng.random(len(items))
    _write(path / "items.jsonl", items)
    for name, *_, right in arms:
        samples, scores = [], []
        for k, item in enumerate(items):
            good = bool(luck[k] < right)
            answer = item["references"][0] if good else f"wrong {k % 7}"
            if k == 3 and name != "baseline":
                good, answer = False, SCRIPT
            failed = k == 5 and name == "IndexCache 1/4"
            common = {"sample_id": item["sample_id"], "task": item["task"]}
            samples.append(
                {
                    **common,
                    "prompt_sha256": f"{k:064x}",
                    "prompt_tokens": 512,
                    "completion_tokens": 4,
                    "completion": "" if failed else answer,
                    "finish_reason": "error" if failed else "stop",
                    "error": f"cannot reach {SECRET}" if failed else None,
                    "reasoning_opened": False,
                    "seconds": 0.1,
                }
            )
            scores.append(
                {
                    **common,
                    "metric": "qa_f1",
                    "score": 1.0 if good and not failed else 0.0,
                    "answer": "" if failed else answer,
                    "flags": ["error"] if failed else [],
                }
            )
        _write(store.arm_dir(name) / "samples.jsonl", samples)
        _write(store.arm_dir(name) / "scores.jsonl", scores)
    twin = "again" if any(arm[0] == "again" for arm in arms) else None
    settings = CompareConfig(margin=0.05, repeat_of_baseline=twin)
    run = RunRecord.parse(
        {
            "format": 1,
            "identity": {},
            "identity_sha256": "c" * 64,
            "recipe": {
                "compare": settings.model_dump(mode="json"),
                "engine": {"kind": "openai_server", "urls": [f"http://{SECRET}:30000"]},
            },
            "tasks": [{"name": t, "samples": n, "deviations": {}} for t in tasks],
            "arms": [entry(*arm[:4]) for arm in arms],
            "environment": {"python": "3.11", "packages": {"numpy": "2"}, "commit": "0" * 40},
            "scoring": {"mode": "official"},
        }
    )
    store.write_run(run)
    return store


def _write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
