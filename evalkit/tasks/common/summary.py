"""What benchmarks report beside the mean of a cell, as tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evalkit.core.grid import Grid
from evalkit.core.records import ItemRow
from evalkit.dsa.json_types import JsonObject

if TYPE_CHECKING:
    from evalkit.stats import ArmScores, Comparison

Items = Mapping[str, ItemRow]
Part = Callable[[Collection[str]], "Comparison"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One table of one benchmark.

    Attributes:
        name: key in compare.json.
        grid: the table.
        notes: what must be known beside it, one line each.
        data: the same for machines.
    """

    name: str
    grid: Grid
    notes: tuple[str, ...] = ()
    data: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores that tables are made of.

    Attributes:
        arms: by arm name, the baseline first.
        items: gold and facts by sample id.
        part: compares the arms on some tasks, for the intervals of plain means; None: no intervals.
    """

    arms: Mapping[str, ArmScores]
    items: Items = field(default_factory=dict)
    part: Part | None = None

    def means(self) -> dict[str, dict[str, float]]:
        """Mean score by cell, by arm."""
        return {name: _means(scores) for name, scores in self.arms.items()}

    def label(self, arm: str, cells: Collection[str]) -> str:
        """An arm's name; with its own n where its samples of some cells are not the baseline's."""
        ours, base = (self._ids(name, cells) for name in (arm, next(iter(self.arms))))
        if ours == base:
            return arm
        other = "other samples" if len(ours) == len(base) else f"not {len(base)}"
        return f"{arm} (n={len(ours)}, {other})"

    def _ids(self, arm: str, cells: Collection[str]) -> set[str]:
        scores = self.arms[arm]
        return {i for i, task in zip(scores.ids, scores.tasks, strict=True) if task in cells}


def _means(scores: ArmScores) -> dict[str, float]:
    cells: dict[str, list[float]] = {}
    for task, score in zip(scores.tasks, scores.scores, strict=True):
        cells.setdefault(task, []).append(score)
    return {task: sum(values) / len(values) for task, values in cells.items()}


def shared_notes(notes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Notes of the arms, each once; arms are named where they differ."""
    groups: dict[str, list[str]] = {}
    for arm, lines in notes.items():
        for line in lines:
            groups.setdefault(line, []).append(arm)
    everyone = len(notes)
    return tuple(
        line if len(arms) == everyone else f"{', '.join(arms)}: {line}"
        for line, arms in groups.items()
    )
