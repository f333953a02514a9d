"""The results of one arm as exporters want them: cells with their samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.run.store import RunStore


@dataclass(frozen=True, slots=True)
class Scored:
    """One sample: its gold, the answer and the score."""

    item: Mapping[str, Any]
    row: Mapping[str, Any]
    score: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One task as it was scored.

    Attributes:
        name: the cell, such as ``vt@4096``.
        metric: in `evalkit.scorers`.
        samples: in the order of the plan.
        planned: samples of the task in this run.
    """

    name: str
    metric: str
    samples: tuple[Scored, ...]
    planned: int

    @property
    def scores(self) -> list[float]:
        """One number in [0, 1] per sample."""
        return [float(sample.score["score"]) for sample in self.samples]

    @property
    def mean(self) -> float:
        """Of the scores; failed generations count 0."""
        return math.fsum(self.scores) / len(self.samples)

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean of independent samples; None for a single one."""
        n = len(self.samples)
        if n < 2:
            return None
        squares = math.fsum((score - self.mean) ** 2 for score in self.scores)
        return math.sqrt(squares / (n - 1) / n)

    @property
    def errors(self) -> int:
        """Failed generations among the samples."""
        return sum("error" in sample.score["flags"] for sample in self.samples)


@dataclass(frozen=True, slots=True)
class ArmResults:
    """One arm of a run.

    Attributes:
        arm: its entry in run.json.
        run: run.json.
        cells: tasks with scores, in order.
        date: when the scores were written.
    """

    arm: Mapping[str, Any]
    run: Mapping[str, Any]
    cells: tuple[Cell, ...]
    date: datetime

    @property
    def name(self) -> str:
        """Of the arm."""
        return str(self.arm["name"])

    @property
    def model(self) -> str:
        """The checkpoint without the folders of this machine; the arm's name if not known."""
        model = str(self.arm.get("model") or "")
        return Path(model).name if Path(model).is_absolute() else model or self.name


def results(store: RunStore, arm: str | None = None) -> Iterator[ArmResults]:
    """Every scored arm of a run, or the one named.

    Raises:
        EvalkitError: no run here, no such arm, or no scores.
    """
    run = store.read_run()
    names = [entry["name"] for entry in run["arms"]]
    if arm is not None and arm not in names:
        raise EvalkitError(f"no arm {arm} in {store.path} ({', '.join(names)})")
    items = store.read_items()
    found = [
        _arm(store, run, entry, items)
        for entry in run["arms"]
        if arm in (None, entry["name"]) and store.read_scores(entry["name"])
    ]
    if not found:
        raise EvalkitError(f"{store.path}: no scores of {arm or 'any arm'}: run evalkit score")
    yield from found


def _arm(
    store: RunStore,
    run: Mapping[str, Any],
    entry: Mapping[str, Any],
    items: Mapping[str, Mapping[str, Any]],
) -> ArmResults:
    rows, scores = store.read_samples(entry["name"]), store.read_scores(entry["name"])
    planned = {task["name"]: int(task["samples"]) for task in run["tasks"]}
    cells: dict[str, list[Scored]] = {}
    for sample_id, item in items.items():
        if sample_id in scores and sample_id in rows:
            cells.setdefault(item["task"], []).append(
                Scored(item, rows[sample_id], scores[sample_id])
            )
    changed = (store.arm_dir(entry["name"]) / "scores.jsonl").stat().st_mtime
    return ArmResults(
        entry,
        run,
        tuple(
            Cell(name, found[0].item["metric"], tuple(found), planned.get(name, len(found)))
            for name, found in cells.items()
        ),
        datetime.fromtimestamp(changed, UTC),
    )
