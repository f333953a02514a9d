"""What LongBench v2 reports: slices, and what a constant letter and chance would give."""

from __future__ import annotations

from evalkit.core.grid import Grid, joined, number
from evalkit.dsa.json_types import JsonObject
from evalkit.tasks.common.summary import Scored, Summary
from evalkit.tasks.longbench_v2.slices import Slice, baselines, slices

V2 = "longbench-v2/"
SIDE_BY_SIDE = 6
"""Arms that are columns; more of them are rows."""


def summaries(scored: Scored) -> list[Summary]:
    """One table per way of asking: slices, then what needs no model."""
    tasks = {task: None for s in scored.arms.values() for task in s.tasks if task.startswith(V2)}
    return [_table(task, scored) for task in tasks]


def _table(task: str, scored: Scored) -> Summary:
    columns: dict[str, dict[str, Slice]] = {}
    sizes: dict[str, int] = {}
    golds: dict[str, str] = {}
    for arm, scores in scored.arms.items():
        by_id = {
            i: score
            for i, t, score in zip(scores.ids, scores.tasks, scores.scores, strict=True)
            if t == task
        }
        if not by_id:
            continue
        meta = {i: scored.items[i].meta for i in by_id}
        parts = slices(by_id, meta, ("difficulty", "length", "domain"))
        columns[arm] = {_label(part): part for part in parts}
        for label, part in columns[arm].items():
            sizes[label] = max(sizes.get(label, 0), part.n)
        golds |= {i: scored.items[i].references[0] for i in by_id}
    guesses = {guess.name: guess.score for guess in baselines(golds.values())}
    best, *_ = guesses
    shown = [best, "chance"]
    title = f"LongBench v2 ({task.removeprefix(V2)}) by slice, and what needs no model"
    rows = [(label, str(size)) for label, size in sizes.items()]
    if len(columns) <= SIDE_BY_SIDE:
        head: tuple[str, ...] = ("slice", "n", *columns)
        cells = [
            (label, size, *(_cell(arm.get(label), size) for arm in columns.values()))
            for label, size in rows
        ]
        cells += [(n, str(len(golds)), *(number(guesses[n]) for _ in columns)) for n in shown]
        right = tuple(range(1, len(head)))
    else:
        head, right = ("slice", "n", "arm", "score"), (1, 3)
        cells = [
            (label, str(arm_parts[label].n), arm, number(arm_parts[label].score))
            for label, _ in rows
            for arm, arm_parts in columns.items()
            if label in arm_parts
        ]
        cells += [(n, str(len(golds)), "", number(guesses[n])) for n in shown]
    data: JsonObject = {
        "slices": {a: {label: p.score for label, p in c.items()} for a, c in columns.items()},
        "n": {a: {label: p.n for label, p in c.items()} for a, c in columns.items()},
        "without a model": guesses,
    }
    return Summary(task, Grid(title, head, tuple(cells), right), (), data)


def _label(part: Slice) -> str:
    return f"{part.facet}: {part.value}" if part.value else part.facet


def _cell(part: Slice | None, size: str) -> str:
    """A score; with its own n where the column of n has another."""
    if part is None:
        return number(None)
    shown = number(part.score)
    return joined((shown, f"(n={part.n})")) if str(part.n) != size else shown
