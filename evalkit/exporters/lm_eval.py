"""Results and sample logs as lm-evaluation-harness writes them.

``<arm>/results_<date>.json`` and ``<arm>/samples_<task>_<date>.jsonl``. LongBench and RULER tasks
have the harness's names (RULER with a metric for every length, LongBench-E with one for every bin),
all others ours. Prompts are not in the records of a run; their place is empty, their hash is ours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evalkit.core.files import write_atomic, write_jsonl
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.exporters.format import ExportFormat
from evalkit.exporters.results import ScoredArm, ScoredCell, ScoredSample
from evalkit.importers.lm_eval import RULER_TASKS
from evalkit.run.store import slug

_RULER_NAMES = {ours: theirs for theirs, ours in RULER_TASKS.items()}
_LONGBENCH_CELL = re.compile(r"longbench(?:-e)?/(?P<task>[^@]+)(?:@(?P<bin>.+))?")
_RULER_CELL = re.compile(r"(?P<task>.+)@(?P<length>\d+)")
FILTER = "none"


@dataclass(frozen=True, slots=True)
class HarnessNames:
    """What lm-evaluation-harness calls a cell.

    Attributes:
        task: the task.
        metric: key of its score.
        gold: field of the document that holds the references.
    """

    task: str
    metric: str
    gold: str


def names(cell: ScoredCell) -> HarnessNames:
    """The harness's names where it has the task, else ours."""
    match = _LONGBENCH_CELL.fullmatch(cell.name)
    if match and match["bin"]:
        return HarnessNames(f"longbench_{match['task']}_e", match["bin"], "answers")
    if match:
        return HarnessNames(f"longbench_{match['task']}", "score", "answers")
    match = _RULER_CELL.fullmatch(cell.name)
    if match and match["task"] in _RULER_NAMES:
        return HarnessNames(_RULER_NAMES[match["task"]], match["length"], "outputs")
    return HarnessNames(cell.name, cell.metric, "references")


Cells = list[tuple[ScoredCell, HarnessNames]]
"""The cells of one task of the harness, with their names there."""


def write(arm: ScoredArm, out: Path) -> list[Path]:
    """Write one arm."""
    folder = out / slug(arm.name)
    date = arm.date.strftime("%Y-%m-%dT%H-%M-%S.%f")
    tasks: dict[str, Cells] = {}
    for cell in arm.cells:
        named = names(cell)
        tasks.setdefault(named.task, []).append((cell, named))
    files, hashes = [], {}
    for task, cells in tasks.items():
        samples = [(sample, named) for cell, named in cells for sample in cell.samples]
        logs = [_sample(doc_id, *pair) for doc_id, pair in enumerate(samples)]
        parts = (f"{log['doc_hash']}{log['prompt_hash']}{log['target_hash']}" for log in logs)
        hashes[task] = _sha256("".join(parts))
        path = folder / f"samples_{re.sub('[^A-Za-z0-9_.@-]+', '__', task)}_{date}.jsonl"
        write_jsonl(path, logs)
        files.append(path)
    path = folder / f"results_{date}.json"
    text = json.dumps({**_results(arm, tasks), "task_hashes": hashes}, indent=2)
    write_atomic(path, text + "\n")
    return [path, *files]


def _results(arm: ScoredArm, tasks: Mapping[str, Cells]) -> JsonObject:
    environment = arm.run.environment
    return {
        "results": {task: dict(_metrics(task, cells)) for task, cells in tasks.items()},
        "group_subtasks": {},
        "configs": {
            task: {
                "task": task,
                "output_type": "generate_until",
                "cells": [cell.name for cell, _ in cells],
            }
            for task, cells in tasks.items()
        },
        "versions": dict.fromkeys(tasks),
        "n-shot": dict.fromkeys(tasks, 0),
        "higher_is_better": {
            task: {named.metric: True for _, named in cells} for task, cells in tasks.items()
        },
        "n-samples": {
            task: {
                "original": sum(cell.planned + cell.taken for cell, _ in cells),
                "effective": sum(len(cell.samples) for cell, _ in cells),
            }
            for task, cells in tasks.items()
        },
        "config": {"model": "evalkit", "model_args": {"pretrained": arm.model}, "limit": None},
        "git_hash": environment.commit,
        "date": arm.date.timestamp(),
        "transformers_version": environment.packages.get("transformers"),
        "evalkit_version": environment.packages.get("dsa-evalkit"),
        "evalkit_arm": {
            key: arm.arm.stored.get(key)
            for key in ("name", "schedule", "weights_sha256", "prompts_sha256", "imported")
        }
        | ({} if arm.arm.selection is None else {"selection": arm.arm.selection}),
        "model_source": "evalkit",
        "model_name": arm.name,
        "model_name_sanitized": slug(arm.name),
    }


def _metrics(task: str, cells: Cells) -> Iterator[tuple[str, JsonValue]]:
    yield "name", task
    yield "alias", task
    yield "sample_len", sum(len(cell.samples) for cell, _ in cells)
    for cell, named in cells:
        yield f"{named.metric},{FILTER}", cell.mean
        yield f"{named.metric}_stderr,{FILTER}", "N/A" if cell.stderr is None else cell.stderr
        if cell.metric == "set_f1":
            exact = sum(score == 1 for score in cell.scores) / len(cell.samples)
            yield f"set_exact,{FILTER}", exact


def _sample(doc_id: int, sample: ScoredSample, named: HarnessNames) -> JsonObject:
    """One line of a sample log."""
    item, row = sample.item, sample.row
    references = list(item.references)
    doc: dict[str, JsonValue] = {"id": item.sample_id, named.gold: references, **item.meta}
    if named.gold == "outputs":
        doc["max_length"] = int(named.metric)
    target = str(references)
    return {
        "doc_id": doc_id,
        "doc": doc,
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": "", "arg_1": {}}},
        "resps": [[] if row.failed else [row.completion]],
        "filtered_resps": [] if row.failed else [sample.score.answer],
        "filter": FILTER,
        "metrics": [named.metric],
        "doc_hash": _sha256(json.dumps(doc, sort_keys=True)),
        "prompt_hash": row.prompt_sha256 or "",
        "target_hash": _sha256(target),
        named.metric: sample.score.score,
        "flags": list(sample.score.flags),
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


FORMAT = ExportFormat(write)
