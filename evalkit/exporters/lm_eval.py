"""Results and sample logs as lm-evaluation-harness writes them.

``<arm>/results_<date>.json`` and ``<arm>/samples_<task>_<date>.jsonl``. LongBench and RULER tasks
have the harness's names (RULER with a metric for every length, LongBench-E with one for every bin),
all others ours. Prompts are not in the records of a run; their place is empty, their hash is ours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalkit.core.files import dumps, write_atomic
from evalkit.exporters.format import ExportFormat
from evalkit.exporters.results import ArmResults, Cell, Scored
from evalkit.importers.lm_eval import RULER_TASKS
from evalkit.run.store import slug

_RULER_NAMES = {ours: theirs for theirs, ours in RULER_TASKS.items()}
_LONGBENCH_CELL = re.compile(r"longbench(?:-e)?/(?P<task>[^@]+)(?:@(?P<bin>.+))?")
_RULER_CELL = re.compile(r"(?P<task>.+)@(?P<length>\d+)")
FILTER = "none"


@dataclass(frozen=True, slots=True)
class Names:
    """What a cell is called over there.

    Attributes:
        task: the task.
        metric: key of its score.
        gold: field of the document that holds the references.
    """

    task: str
    metric: str
    gold: str


def names(cell: Cell) -> Names:
    """The harness's names where it has the task, else ours."""
    match = _LONGBENCH_CELL.fullmatch(cell.name)
    if match and match["bin"]:
        return Names(f"longbench_{match['task']}_e", match["bin"], "answers")
    if match:
        return Names(f"longbench_{match['task']}", "score", "answers")
    match = _RULER_CELL.fullmatch(cell.name)
    if match and match["task"] in _RULER_NAMES:
        return Names(_RULER_NAMES[match["task"]], match["length"], "outputs")
    return Names(cell.name, cell.metric, "references")


def write(found: ArmResults, out: Path) -> list[Path]:
    """Write one arm."""
    folder = out / slug(found.name)
    date = found.date.strftime("%Y-%m-%dT%H-%M-%S.%f")
    tasks: dict[str, list[tuple[Cell, Names]]] = {}
    for cell in found.cells:
        own = names(cell)
        tasks.setdefault(own.task, []).append((cell, own))
    files, hashes = [], {}
    for task, cells in tasks.items():
        logs = [
            _sample(doc_id, sample, own)
            for doc_id, (sample, own) in enumerate(
                (sample, own) for cell, own in cells for sample in cell.samples
            )
        ]
        parts = (f"{log['doc_hash']}{log['prompt_hash']}{log['target_hash']}" for log in logs)
        hashes[task] = _sha256("".join(parts))
        path = folder / f"samples_{re.sub('[^A-Za-z0-9_.@-]+', '__', task)}_{date}.jsonl"
        write_atomic(path, "".join(dumps(log) + "\n" for log in logs))
        files.append(path)
    path = folder / f"results_{date}.json"
    text = json.dumps(_results(found, tasks) | {"task_hashes": hashes}, indent=2)
    write_atomic(path, text + "\n")
    return [path, *files]


def _results(found: ArmResults, tasks: dict[str, list[tuple[Cell, Names]]]) -> dict[str, Any]:
    environment = found.run.get("environment", {})
    packages = environment.get("packages", {})
    return {
        "results": {task: dict(_metrics(task, cells)) for task, cells in tasks.items()},
        "group_subtasks": {},
        "configs": {
            task: {"task": task, "output_type": "generate_until", "cells": [c.name for c, _ in own]}
            for task, own in tasks.items()
        },
        "versions": dict.fromkeys(tasks),
        "n-shot": dict.fromkeys(tasks, 0),
        "higher_is_better": {
            task: {own.metric: True for _, own in cells} for task, cells in tasks.items()
        },
        "n-samples": {
            task: {
                "original": sum(cell.planned for cell, _ in cells),
                "effective": sum(len(cell.samples) for cell, _ in cells),
            }
            for task, cells in tasks.items()
        },
        "config": {"model": "evalkit", "model_args": {"pretrained": found.model}, "limit": None},
        "git_hash": environment.get("commit"),
        "date": found.date.timestamp(),
        "transformers_version": packages.get("transformers"),
        "evalkit_version": packages.get("dsa-evalkit"),
        "evalkit_arm": {
            key: found.arm.get(key)
            for key in ("name", "schedule", "weights_sha256", "prompts_sha256", "imported")
        },
        "model_source": "evalkit",
        "model_name": found.name,
        "model_name_sanitized": slug(found.name),
    }


def _metrics(task: str, cells: list[tuple[Cell, Names]]) -> Iterator[tuple[str, Any]]:
    yield "name", task
    yield "alias", task
    yield "sample_len", sum(len(cell.samples) for cell, _ in cells)
    for cell, own in cells:
        yield f"{own.metric},{FILTER}", cell.mean
        yield f"{own.metric}_stderr,{FILTER}", "N/A" if cell.stderr is None else cell.stderr
        if cell.metric == "set_f1":
            exact = sum(score == 1 for score in cell.scores) / len(cell.samples)
            yield f"set_exact,{FILTER}", exact


def _sample(doc_id: int, sample: Scored, own: Names) -> dict[str, Any]:
    """One line of a sample log."""
    item, row = sample.item, sample.row
    meta = dict(item.get("meta", {}))
    doc = {"id": item["sample_id"], own.gold: item["references"], **meta}
    if own.gold == "outputs":
        doc["max_length"] = int(own.metric)
    target = str(item["references"])
    failed = row.get("finish_reason") == "error"
    return {
        "doc_id": doc_id,
        "doc": doc,
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": "", "arg_1": {}}},
        "resps": [[] if failed else [row["completion"]]],
        "filtered_resps": [] if failed else [sample.score["answer"]],
        "filter": FILTER,
        "metrics": [own.metric],
        "doc_hash": _sha256(json.dumps(doc, sort_keys=True)),
        "prompt_hash": row.get("prompt_sha256") or "",
        "target_hash": _sha256(target),
        own.metric: sample.score["score"],
        "flags": list(sample.score["flags"]),
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


FORMAT = ExportFormat(write)
