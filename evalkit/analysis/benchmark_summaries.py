"""What the benchmarks themselves report beside the mean of a cell, arm by arm.

RULER: score per length, both weighted averages, effective length. LongBench: the macros of every
suite that is complete, each with its list of tasks, and LongBench-E by length bin. LongBench v2:
slices, and what a constant letter and chance would give.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.core.grid import Grid, number
from evalkit.stats import MACRO, ArmScores, Comparison, PairedResult
from evalkit.tasks.longbench.facts import BINS
from evalkit.tasks.longbench.suites import Macro, complete
from evalkit.tasks.longbench_v2.slices import baselines, slices
from evalkit.tasks.ruler.aggregate import THRESHOLD, Aggregate, aggregate

Items = Mapping[str, Mapping[str, Any]]
Part = Callable[[Collection[str]], Comparison]

V2 = "longbench-v2/"
E = "longbench-e/"
SIDE_BY_SIDE = 6
"""Arms that are columns; more of them are rows."""


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
    data: Mapping[str, Any] = field(default_factory=dict)


def summaries(
    scored: Mapping[str, ArmScores], items: Items, part: Part | None = None
) -> tuple[Summary, ...]:
    """Every table that the run has scores for.

    Args:
        scored: by arm name, the baseline first.
        items: gold and facts by sample id.
        part: compares the arms on some tasks, for the intervals of plain means.
    """
    means = {name: _means(scores) for name, scores in scored.items()}
    found = [_ruler(means), _macros(means, part), _bins(means), *_v2(scored, items)]
    return tuple(summary for summary in found if summary is not None)


def _means(scores: ArmScores) -> dict[str, float]:
    """Mean score by cell."""
    cells: dict[str, list[float]] = {}
    for task, score in zip(scores.tasks, scores.scores, strict=True):
        cells.setdefault(task, []).append(score)
    return {task: sum(values) / len(values) for task, values in cells.items()}


def _ruler(means: Mapping[str, Mapping[str, float]]) -> Summary | None:
    """One row per arm; nothing for a few tasks at one length, which the task table says."""
    found = {name: a for name, cells in means.items() if (a := aggregate(cells)) is not None}
    if not any(len(a.lengths) > 1 or not a.lengths[0].missing for a in found.values()):
        return None
    lengths = sorted({row.length for a in found.values() for row in a.lengths})
    rows = tuple((name, *_ruler_cells(a, lengths)) for name, a in found.items())
    head = ("arm", *map(str, lengths), "mean", "wAvg (inc)", "wAvg (dec)", "effective length")
    title = f"RULER by length; effective: the longest with {THRESHOLD:.3f} or more"
    return Summary(
        "ruler",
        Grid(title, head, rows, tuple(range(1, len(head)))),
        _shared({name: a.notes for name, a in found.items()}),
        {
            name: {
                "lengths": {str(row.length): row.score for row in a.lengths},
                "average": a.average,
                "weighted_increasing": a.weighted_increasing,
                "weighted_decreasing": a.weighted_decreasing,
                "effective_length": a.effective_length,
                "complete": a.complete,
                "notes": list(a.notes),
            }
            for name, a in found.items()
        },
    )


def _ruler_cells(found: Aggregate, lengths: Sequence[int]) -> list[str]:
    scores = {row.length: row.score for row in found.lengths}
    reached = "none" if found.effective_length is None else str(found.effective_length)
    averages = (found.average, found.weighted_increasing, found.weighted_decreasing)
    return [*(number(scores.get(length)) for length in lengths), *map(number, averages), reached]


def _macros(means: Mapping[str, Mapping[str, float]], part: Part | None) -> Summary | None:
    """One row per macro and arm, the list of tasks beside the macro's first row."""
    found = {name: {m.name: m for m in complete(cells)} for name, cells in means.items()}
    macros = {name: macro for arm in found.values() for name, macro in arm.items()}
    if not macros:
        return None
    base = next(iter(found.values()))
    paired = {name: _intervals(macro, part) for name, macro in macros.items()}
    rows = [
        (
            macro.label if first else "",
            arm,
            number(own[name].value),
            _change(own[name].value, base.get(name)),
            _interval(paired[name].get(arm)),
            macro.listed.replace("longbench/", "").replace("longbench-e/", "") if first else "",
        )
        for name, macro in macros.items()
        for first, (arm, own) in _firsts({a: o for a, o in found.items() if name in o})
    ]
    head = ("LongBench macro", "arm", "score", "Δ", "interval", "over the tasks")
    data = {
        name: {
            "suite": macro.suite,
            "confirmed": macro.confirmed,
            "weights": dict(macro.weights),
            "scores": {arm: own[name].value for arm, own in found.items() if name in own},
            "intervals": {arm: [row.low, row.high] for arm, row in paired[name].items()},
        }
        for name, macro in macros.items()
    }
    grid = Grid("LongBench suites", head, tuple(rows), (2, 3, 4))
    note = "intervals are paired; means over categories have none"
    return Summary("longbench", grid, (note,) if any(paired.values()) else (), data)


def _intervals(macro: Macro, part: Part | None) -> dict[str, PairedResult]:
    """The paired comparison of a plain mean, by arm; none where weights differ."""
    if part is None or len(set(macro.weights.values())) > 1 or len(macro.weights) < 2:
        return {}
    rows = part(set(macro.weights)).rows
    return {row.arm: row.result for row in rows if row.task == MACRO and row.result is not None}


def _interval(found: PairedResult | None) -> str:
    return "" if found is None else f"[{found.low:+.3f}, {found.high:+.3f}]"


def _firsts(
    found: Mapping[str, Mapping[str, Macro]],
) -> list[tuple[bool, tuple[str, Mapping[str, Macro]]]]:
    return [(k == 0, entry) for k, entry in enumerate(found.items())]


def _change(value: float | None, base: Macro | None) -> str:
    if value is None or base is None or base.value is None or value == base.value:
        return ""
    return f"{value - base.value:+.3f}"


def _bins(means: Mapping[str, Mapping[str, float]]) -> Summary | None:
    """LongBench-E: the plain mean of the tasks of a bin, one row per arm."""
    cells = {
        arm: {bin_: _bin(found, bin_) for bin_ in BINS}
        for arm, found in means.items()
        if any(task.startswith(E) for task in found)
    }
    if not cells:
        return None
    mean = {
        arm: {b: sum(v.values()) / len(v) if v else None for b, v in bins.items()}
        for arm, bins in cells.items()
    }
    rows = tuple((arm, *(number(bins[b]) for b in BINS)) for arm, bins in mean.items())
    tasks = {arm: (", ".join(dict.fromkeys(_listed(bins))),) for arm, bins in cells.items()}
    notes = tuple(f"mean over the tasks {line}" for line in _shared(tasks))
    grid = Grid("LongBench-E by length (words)", ("arm", *BINS), rows, (1, 2, 3))
    return Summary("longbench_e", grid, notes, mean)


def _bin(found: Mapping[str, float], bin_: str) -> dict[str, float]:
    ending = f"@{bin_}"
    return {t: s for t, s in found.items() if t.startswith(E) and t.endswith(ending)}


def _listed(bins: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [t.removeprefix(E).partition("@")[0] for cells in bins.values() for t in cells]


def _v2(scored: Mapping[str, ArmScores], items: Items) -> list[Summary]:
    """One table per way of asking: slices, then what needs no model."""
    tasks = {task: None for s in scored.values() for task in s.tasks if task.startswith(V2)}
    return [_v2_task(task, scored, items) for task in tasks]


def _v2_task(task: str, scored: Mapping[str, ArmScores], items: Items) -> Summary:
    columns: dict[str, dict[str, float]] = {}
    sizes: dict[str, int] = {}
    golds: dict[str, str] = {}
    for arm, scores in scored.items():
        own = {
            i: score
            for i, t, score in zip(scores.ids, scores.tasks, scores.scores, strict=True)
            if t == task
        }
        if not own:
            continue
        found = slices(own, items, ("difficulty", "length", "domain"))
        columns[arm] = {_label(s.facet, s.value): s.score for s in found}
        for s in found:
            label = _label(s.facet, s.value)
            sizes[label] = max(sizes.get(label, 0), s.n)
        golds |= {i: str(items[i]["references"][0]) for i in own}
    guesses = {guess.name: guess.score for guess in baselines(golds.values())}
    best, *_ = guesses
    shown = [best, "chance"]
    title = f"LongBench v2 ({task.removeprefix(V2)}) by slice, and what needs no model"
    rows = [(label, str(sizes[label])) for label in sizes]
    if len(columns) <= SIDE_BY_SIDE:
        head: tuple[str, ...] = ("slice", "n", *columns)
        cells = [(*row, *(number(own.get(row[0])) for own in columns.values())) for row in rows]
        cells += [(n, str(len(golds)), *(number(guesses[n]) for _ in columns)) for n in shown]
        right = tuple(range(1, len(head)))
    else:
        head, right = ("slice", "n", "arm", "score"), (1, 3)
        cells = [(*r, arm, number(own.get(r[0]))) for r in rows for arm, own in columns.items()]
        cells += [(n, str(len(golds)), "", number(guesses[n])) for n in shown]
    data = {"slices": columns, "n": sizes, "without a model": guesses}
    return Summary(task, Grid(title, head, tuple(cells), right), (), data)


def _label(facet: str, value: str) -> str:
    return f"{facet}: {value}" if value else facet


def _shared(notes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
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
