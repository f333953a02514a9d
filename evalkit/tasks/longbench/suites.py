"""Suites: named lists of tasks, and the macro means reported over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import Field

from evalkit.core.recipe import Strict, parse
from evalkit.tasks.longbench.facts import BINS, tasks, toml


class MacroSpec(Strict):
    """One mean over tasks of a suite.

    Attributes:
        name: shown in tables.
        average: ``category`` (mean over the categories' means) or ``flat``.
        languages: only tasks of these; default: all.
    """

    name: str
    average: Literal["category", "flat"]
    languages: tuple[str, ...] = ("en", "zh", "code")


class Suite(Strict):
    """A named list of tasks.

    Attributes:
        title: what it is.
        tasks: in order.
        macros: means to report.
        e: cells of LongBench-E instead of LongBench.
        confirmed: False for a guess at a list that was never published.
    """

    title: str
    tasks: tuple[str, ...] = Field(min_length=1)
    macros: tuple[MacroSpec, ...]
    e: bool = False
    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class Macro:
    """A mean over cells, computed.

    Attributes:
        suite: the suite it belongs to.
        name: of the mean.
        value: None where a cell is missing.
        weights: of every cell; they sum to 1.
        missing: cells that have no score.
        confirmed: whether the list of tasks is a published one.
    """

    suite: str
    name: str
    value: float | None
    weights: Mapping[str, float]
    missing: tuple[str, ...]
    confirmed: bool

    @property
    def label(self) -> str:
        """The name, with a warning where the list is a guess."""
        return self.name if self.confirmed else f"{self.name}, unconfirmed"

    @property
    def listed(self) -> str:
        """The cells in words, to be printed beside the value."""
        return ", ".join(self.weights)


@cache
def suites() -> dict[str, Suite]:
    """All suites by name."""
    return {
        name: parse(entry, Suite, f"suites.toml [{name}]") for name, entry in toml("suites").items()
    }


def cell(task: str, bin_: str | None = None) -> str:
    """The name of a cell: ``longbench/qasper``, ``longbench-e/qasper@0-4k``."""
    return f"longbench/{task}" if bin_ is None else f"longbench-e/{task}@{bin_}"


def macros(suite: str, scores: Mapping[str, float]) -> list[Macro]:
    """The means of a suite; those of LongBench-E once per length bin.

    Args:
        suite: a name in `suites`.
        scores: mean score per cell (`cell`).
    """
    chosen = suites()[suite]
    means = []
    for spec in chosen.macros:
        for name, cells in _cells(chosen, spec):
            weights = _weights(cells, spec.average)
            missing = tuple(c for c in weights if c not in scores)
            value = None if missing else sum(w * scores[c] for c, w in weights.items())
            means.append(Macro(suite, name, value, weights, missing, chosen.confirmed))
    return means


def complete(scores: Mapping[str, float]) -> list[Macro]:
    """The means of all suites whose cells all have a score, each name once."""
    by_name: dict[str, Macro] = {}
    for suite in suites():
        for macro in macros(suite, scores):
            if macro.value is not None:
                by_name.setdefault(macro.name, macro)
    return list(by_name.values())


def _cells(suite: Suite, spec: MacroSpec) -> Iterator[tuple[str, dict[str, str]]]:
    """Names of the means, each with the cells it is over and their categories."""
    facts = tasks()
    names = [task for task in suite.tasks if facts[task].language in spec.languages]
    if not suite.e:
        yield spec.name, {cell(task): facts[task].category for task in names}
        return
    for bin_ in BINS:
        yield f"{spec.name} {bin_}", {cell(task, bin_): facts[task].category for task in names}


def _weights(cells: Mapping[str, str], average: str) -> dict[str, float]:
    if average == "flat":
        return dict.fromkeys(cells, 1 / len(cells))
    sizes: dict[str, int] = {}
    for category in cells.values():
        sizes[category] = sizes.get(category, 0) + 1
    return {name: 1 / (len(sizes) * sizes[category]) for name, category in cells.items()}
