"""Evaluation results for a model card on the Hugging Face hub.

``<arm>/model-index.yaml`` goes into the front matter of README.md; ``<arm>/eval_results.yaml``
goes into the folder ``.eval_results`` and holds the tasks whose data set is on the hub. Values are
points of 100, as both forms have them in published cards.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from evalkit.core.files import write_atomic
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.exporters.format import ExportFormat
from evalkit.exporters.results import ScoredArm, ScoredCell
from evalkit.run.store import slug
from evalkit.scorers import METRICS
from evalkit.tasks.base import Dataset
from evalkit.tasks.registry import kind_of


def dataset(cell: ScoredCell) -> Dataset:
    """The data set of a cell."""
    kind = kind_of(cell.name)
    if kind is not None and kind.dataset is not None:
        return kind.dataset(cell.name)
    return Dataset(cell.name.partition("@")[0], cell.name, cell.name)


def write(arm: ScoredArm, out: Path) -> list[Path]:
    """Write one arm."""
    folder = out / slug(arm.name)
    name = arm.model if arm.model == arm.name else f"{arm.model} ({arm.name})"
    index: list[JsonObject] = [{"name": name, "results": [_result(cell) for cell in arm.cells]}]
    files = [folder / "model-index.yaml"]
    write_atomic(files[0], _dumped({"model-index": index}))
    entries = [_entry(cell, arm) for cell in arm.cells if dataset(cell).hub]
    if entries:
        files.append(folder / "eval_results.yaml")
        write_atomic(files[1], _dumped(entries))
    return files


def _result(cell: ScoredCell) -> JsonObject:
    arguments: dict[str, JsonValue] = {"samples": len(cell.samples), "metric": cell.metric}
    if cell.stderr is not None:
        arguments["stderr"] = round(100 * cell.stderr, 2)
    if cell.taken:
        arguments["taken_out_after_they_were_answered"] = cell.taken
    if cell.errors:
        arguments["failed"] = cell.errors
    return {
        "task": {"type": "text-generation", "name": "Text Generation"},
        "dataset": _fields(dataset(cell)),
        "metrics": [
            {
                "type": _hub_metric(cell.metric),
                "value": round(100 * cell.mean, 2),
                "name": cell.metric,
                "args": arguments,
            }
        ],
    }


def _entry(cell: ScoredCell, arm: ScoredArm) -> JsonObject:
    data = dataset(cell)
    taken = f" ({cell.taken} were taken out after they were answered)" if cell.taken else ""
    return {
        "dataset": {"id": data.type, "task_id": data.config},
        "value": round(100 * cell.mean, 2),
        "date": arm.date.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "notes": f"{arm.name}; {cell.metric} of {len(cell.samples)} samples{taken}",
    }


def _hub_metric(name: str) -> str:
    """The hub's name of a metric, else ours; its package need not be here any more."""
    return (METRICS[name].hub if name in METRICS else None) or name


def _fields(data: Dataset) -> dict[str, str]:
    """Those that are set."""
    values = {"name": data.name, "type": data.type, "config": data.config, "split": data.split}
    return {key: value for key, value in values.items() if value is not None}


def _dumped(data: JsonValue) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


FORMAT = ExportFormat(write)
