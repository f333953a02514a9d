"""What the arms of a comparison have in common: benchmarks, families, retention."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from evalkit.analysis.compare import RunComparison, compare_part
from evalkit.core.records import ArmEntry
from evalkit.stats import Comparison
from evalkit.tasks.registry import kind_of, kinds_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where an arm stands among the others.

    Attributes:
        family: ``IndexCache``, ``MLI k=1`` …, with ``, distilled`` where its indexers are; None
            where the schedule is not known, or a selection of its own sets the arm apart.
        retention: full layers among the layers with an indexer; of a uniform pattern 1/n, n its
            step, whatever rounding leaves at the end of the model.
    """

    family: str | None
    retention: Fraction | None


def benchmark_of(task: str) -> str:
    """The benchmark a cell belongs to, by its name; the name itself where none has it."""
    kind = kind_of(task)
    column = kind.column(task) if kind is not None else None
    return column or task.partition("@")[0].partition("/")[0]


def benchmarks(comparison: RunComparison) -> dict[str, list[str]]:
    """Tasks of every benchmark, in the order of the registry of tasks, then of the run."""
    tasks: dict[str, list[str]] = {}
    for task in comparison.tasks:
        tasks.setdefault(benchmark_of(task.name), []).append(task.name)
    kinds = kinds_of(task.name for task in comparison.tasks)
    columns = [column for kind in kinds for column in kind.columns.values() if column in tasks]
    return {name: tasks[name] for name in dict.fromkeys([*columns, *tasks])}


def by_benchmark(comparison: RunComparison) -> dict[str, Comparison]:
    """A comparison for every benchmark that the baseline has."""
    baseline = comparison.scored.get(comparison.result.baseline)
    has = set(() if baseline is None else baseline.tasks)
    return {
        name: compare_part(comparison, tasks)
        for name, tasks in benchmarks(comparison).items()
        if has.intersection(tasks)
    }


def place(arm: ArmEntry) -> Place:
    """Family and retention of an arm."""
    if arm.schedule is None or arm.selection is not None:
        return Place(None, None)
    lag = arm.schedule.lag
    if isinstance(lag, int):
        family = f"MLI k={lag}" if lag else "IndexCache"
    else:
        family = "MLI, lag by layer"
    if arm.indexer_sha256:
        family += ", distilled"
    return Place(family, retention(arm.schedule.pattern))


def retention(pattern: str) -> Fraction:
    """Full layers among all; 1/n for full layers at 0, n, 2n …"""
    step = pattern.find("F", 1)
    if step < 0:
        return Fraction(1, len(pattern))
    uniform = "".join("F" if i % step == 0 else "S" for i in range(len(pattern)))
    return Fraction(1, step) if uniform == pattern else Fraction(pattern.count("F"), len(pattern))


def entry(comparison: RunComparison, arm: str) -> ArmEntry:
    """The entry of an arm in run.json."""
    return next(entry for entry in comparison.arms if entry.name == arm)


def in_force(arm: ArmEntry) -> str:
    """Whether the schedule was in force, as the engine said, without addresses."""
    return re.sub(r"\w+://\S+", "(address)", arm.engagement)
