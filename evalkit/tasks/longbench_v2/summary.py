"""What LongBench v2 reports: slices, and what a constant letter and chance would give."""

from __future__ import annotations

from evalkit.core.grid import Grid, number
from evalkit.dsa.json_types import JsonObject
from evalkit.tasks.common.summary import Scored, Summary
from evalkit.tasks.longbench_v2.slices import baselines, slices

V2 = "longbench-v2/"
SIDE_BY_SIDE = 6
"""Arms that are columns; more of them are rows."""


def summaries(scored: Scored) -> list[Summary]:
    """One table per way of asking: slices, then what needs no model."""
    tasks = {task: None for s in scored.arms.values() for task in s.tasks if task.startswith(V2)}
    return [_table(task, scored) for task in tasks]


def _table(task: str, scored: Scored) -> Summary:
    columns: dict[str, dict[str, float]] = {}
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
        columns[arm] = {_label(part.facet, part.value): part.score for part in parts}
        for part in parts:
            label = _label(part.facet, part.value)
            sizes[label] = max(sizes.get(label, 0), part.n)
        golds |= {i: scored.items[i].references[0] for i in by_id}
    guesses = {guess.name: guess.score for guess in baselines(golds.values())}
    best, *_ = guesses
    shown = [best, "chance"]
    title = f"LongBench v2 ({task.removeprefix(V2)}) by slice, and what needs no model"
    rows = [(label, str(size)) for label, size in sizes.items()]
    if len(columns) <= SIDE_BY_SIDE:
        head: tuple[str, ...] = ("slice", "n", *columns)
        cells = [(*row, *(number(arm.get(row[0])) for arm in columns.values())) for row in rows]
        cells += [(n, str(len(golds)), *(number(guesses[n]) for _ in columns)) for n in shown]
        right = tuple(range(1, len(head)))
    else:
        head, right = ("slice", "n", "arm", "score"), (1, 3)
        cells = [(*r, arm, number(c.get(r[0]))) for r in rows for arm, c in columns.items()]
        cells += [(n, str(len(golds)), "", number(guesses[n])) for n in shown]
    data: JsonObject = {"slices": columns, "n": sizes, "without a model": guesses}
    return Summary(task, Grid(title, head, tuple(cells), right), (), data)


def _label(facet: str, value: str) -> str:
    return f"{facet}: {value}" if value else facet
