"""What LongBench reports: the macros of every complete suite, and LongBench-E by length bin."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from evalkit.core.grid import Grid, between, change, number
from evalkit.dsa.json_types import JsonObject
from evalkit.tasks.common.summary import Part, Scored, Summary, shared_notes
from evalkit.tasks.longbench.facts import BINS
from evalkit.tasks.longbench.suites import Macro, complete

if TYPE_CHECKING:
    from evalkit.stats import PairedResult
    from evalkit.stats.weighted_mean import WeightedDifference

E = "longbench-e/"
INTERVALS = (
    "Δ and interval are paired, on the samples that arm and baseline share; those of means over"
    " categories are put together from the tasks' own (Zou and Donner 2008)"
)


def summaries(scored: Scored) -> list[Summary]:
    """The table of the macros, each with its list of tasks, and the table of the length bins."""
    means = scored.means()
    tables = [_macros(means, scored), _bins(means, scored)]
    return [table for table in tables if table is not None]


def _macros(means: Mapping[str, Mapping[str, float]], scored: Scored) -> Summary | None:
    """One row per macro and arm, the list of tasks beside the macro's first row."""
    by_arm = {name: {m.name: m for m in complete(cells)} for name, cells in means.items()}
    macros = {name: macro for arm in by_arm.values() for name, macro in arm.items()}
    if not macros:
        return None
    base = next(iter(by_arm.values()))
    paired = _intervals(macros, scored.part)
    scores = {
        name: {arm: values[name].value for arm, values in by_arm.items() if name in values}
        for name in macros
    }
    rows: list[tuple[str, ...]] = []
    for name, macro in macros.items():
        listed = macro.listed.replace("longbench/", "").replace("longbench-e/", "")
        for k, (arm, score) in enumerate(scores[name].items()):
            rows.append(
                (
                    "" if k else macro.label,
                    scored.label(arm, macro.weights),
                    number(score),
                    _change(score, base.get(name), paired[name].get(arm)),
                    _interval(paired[name].get(arm)),
                    "" if k else listed,
                )
            )
    head = ("LongBench macro", "arm", "score", "Δ", "interval", "over the tasks")
    data: JsonObject = {
        name: {
            "suite": macro.suite,
            "confirmed": macro.confirmed,
            "weights": dict(macro.weights),
            "scores": scores[name],
            "intervals": {arm: [row.low, row.high] for arm, row in paired[name].items()},
        }
        for name, macro in macros.items()
    }
    grid = Grid("LongBench suites", head, tuple(rows), (2, 3, 4))
    return Summary("longbench", grid, (INTERVALS,) if any(paired.values()) else (), data)


def _intervals(
    macros: Mapping[str, Macro], part: Part | None
) -> dict[str, dict[str, WeightedDifference]]:
    """The paired comparison of every mean, by its name and by arm that has all of its tasks."""
    if part is None:
        return {name: {} for name in macros}
    uneven = {name: m.weights for name, m in macros.items() if len(set(m.weights.values())) > 1}
    tasks = {task for weights in uneven.values() for task in weights}
    by_task = _results(part, tasks) if tasks else {}
    return {
        name: _weighted(by_task, uneven[name]) if name in uneven else _plain(part, macro.weights)
        for name, macro in macros.items()
    }


def _results(part: Part, tasks: Collection[str]) -> dict[str, dict[str, PairedResult]]:
    """Paired results by arm, then by task and for the macro average of these tasks."""
    by_arm: dict[str, dict[str, PairedResult]] = {}
    for row in part(tasks).rows:
        if row.result is not None:
            by_arm.setdefault(row.arm, {})[row.task] = row.result
    return by_arm


def _weighted(
    by_arm: Mapping[str, Mapping[str, PairedResult]], weights: Mapping[str, float]
) -> dict[str, WeightedDifference]:
    from evalkit.stats.weighted_mean import weighted_difference

    return {
        arm: weighted_difference(results, weights)
        for arm, results in by_arm.items()
        if results.keys() >= weights.keys()
    }


def _plain(part: Part, weights: Mapping[str, float]) -> dict[str, WeightedDifference]:
    from evalkit.stats import MACRO
    from evalkit.stats.weighted_mean import WeightedDifference

    return {
        arm: WeightedDifference(results[MACRO].delta, results[MACRO].low, results[MACRO].high)
        for arm, results in _results(part, set(weights)).items()
        if results.keys() >= weights.keys()
    }


def _interval(result: WeightedDifference | None) -> str:
    return "" if result is None else between(result.low, result.high)


def _change(value: float | None, base: Macro | None, paired: WeightedDifference | None) -> str:
    if paired is not None:
        return change(paired.delta)
    if value is None or base is None or base.value is None or value == base.value:
        return ""
    return change(value - base.value)


def _bins(means: Mapping[str, Mapping[str, float]], scored: Scored) -> Summary | None:
    """LongBench-E: the plain mean of the tasks of a bin, one row per arm."""
    cells = {
        arm: {bin_: _bin(scores, bin_) for bin_ in BINS}
        for arm, scores in means.items()
        if any(task.startswith(E) for task in scores)
    }
    if not cells:
        return None
    mean = {
        arm: {b: sum(v.values()) / len(v) if v else None for b, v in bins.items()}
        for arm, bins in cells.items()
    }
    every = {task for scores in means.values() for task in scores if task.startswith(E)}
    rows = tuple(
        (scored.label(arm, every), *(number(bins[b]) for b in BINS)) for arm, bins in mean.items()
    )
    tasks = {arm: (", ".join(dict.fromkeys(_listed(bins))),) for arm, bins in cells.items()}
    notes = tuple(f"mean over the tasks {line}" for line in shared_notes(tasks))
    grid = Grid("LongBench-E by length (words)", ("arm", *BINS), rows, (1, 2, 3))
    return Summary("longbench_e", grid, notes, mean)


def _bin(scores: Mapping[str, float], bin_: str) -> dict[str, float]:
    ending = f"@{bin_}"
    return {t: s for t, s in scores.items() if t.startswith(E) and t.endswith(ending)}


def _listed(bins: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [t.removeprefix(E).partition("@")[0] for cells in bins.values() for t in cells]
