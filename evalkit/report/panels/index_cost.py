"""Quality against what selecting costs, for runs with an arm that selects in a way of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from evalkit.analysis.compare import RunComparison
from evalkit.core.grid import Grid
from evalkit.core.records import ArmEntry
from evalkit.report.panels.base import Drawing, Panel, Section, Table
from evalkit.report.plots import index_cost
from evalkit.report.plots.index_cost import Point
from evalkit.report.tables import difference, interval
from evalkit.run.store import RunStore
from evalkit.stats import MACRO, Row

COUNTED = (
    "index cost: products of an index query and a key, counted, not run or timed; relative to all"
    " layers scoring every key with every head. prefill is of the whole prompt, decode of a step"
    " behind it, cost is decode with a key of 8 bits counted half of one of 16. Frontier (*): no"
    " other arm has at least the score at no more cost"
)


@dataclass(frozen=True, slots=True)
class CostRow:
    """One arm.

    Attributes:
        arm: its entry in run.json.
        row: its macro average.
        prefill: mean over the tasks.
        decode: likewise.
        cost: likewise, of the weighted cost.
        frontier: whether no other arm has at least its score at no more cost.
    """

    arm: ArmEntry
    row: Row
    prefill: float
    decode: float
    cost: float
    frontier: bool


def cost_rows(comparison: RunComparison) -> list[CostRow]:
    """Arms whose cost was recorded, in the order of the run; none where no arm has a selection."""
    if not any(arm.selection for arm in comparison.arms):
        return []
    macros = {row.arm: row for row in comparison.result.rows if row.task == MACRO}
    known = [
        (arm, macros[arm.name], list(arm.index_costs.values()))
        for arm in comparison.arms
        if arm.index_costs and arm.name in macros and arm.name != comparison.options.repeat
    ]
    points = [(fmean(c.weighted for c in costs), row.score or 0.0) for _, row, costs in known]
    return [
        CostRow(
            arm,
            row,
            fmean(c.prefill for c in costs),
            fmean(c.decode for c in costs),
            point[0],
            on_frontier(point, points),
        )
        for (arm, row, costs), point in zip(known, points, strict=True)
    ]


def on_frontier(point: tuple[float, float], points: Sequence[tuple[float, float]]) -> bool:
    """Whether no other (cost, score) is at least as good in both and better in one."""
    cost, score = point
    return not any(c <= cost and s >= score and (c, s) != point for c, s in points)


def table(comparison: RunComparison) -> Grid | None:
    """One row per arm, from the dearest to the cheapest."""
    rows = cost_rows(comparison)
    if not rows:
        return None
    lengths = sorted({c.tokens for row in rows for c in row.arm.index_costs.values()})
    tokens = f"{lengths[0]:,}" if len(lengths) == 1 else f"{lengths[0]:,} to {lengths[-1]:,}"
    cells = tuple(
        (
            row.arm.name,
            "–" if row.arm.schedule is None else _layers(row.arm),
            row.arm.selection or "as trained",
            f"{row.prefill:.3f}",
            f"{row.decode:.3f}",
            str(next(iter(row.arm.index_costs.values())).key_bits),
            f"{row.cost:.3f}{' *' if row.frontier else ''}",
            f"{row.row.score or 0.0:.3f}",
            difference(row.row),
            interval(row.row),
            str(row.row.verdict),
        )
        for row in sorted(rows, key=lambda row: -row.cost)
    )
    percent = f"{comparison.settings.confidence:.0%}".replace("%", " %")
    head = (
        *("arm", "full layers", "selection", "prefill", "decode", "key bits", "cost"),
        *("score", "Δ", f"{percent} interval", "verdict"),
    )
    title = f"index cost relative to the full scan, prompts of {tokens} tokens"
    return Grid(title, head, cells, (1, 3, 4, 5, 6, 7, 8))


def _layers(arm: ArmEntry) -> str:
    schedule = arm.schedule
    return "" if schedule is None else f"{len(schedule.full_layer_ids)}/{len(schedule.layer_ids)}"


def _section(_: RunStore, comparison: RunComparison) -> Section | None:
    grid = table(comparison)
    if grid is None:
        return None
    points = [
        Point(row.arm.name, _family(row.arm), row.cost, row.row, row.frontier)
        for row in cost_rows(comparison)
    ]
    drawing = Drawing(
        "index-cost",
        "Score against relative index cost, one point per arm, the frontier as a line",
        lambda: index_cost.draw(comparison, points),
    )
    lead = f"{COUNTED[0].upper()}{COUNTED[1:]}."
    return Section("Quality against index cost", lead, (drawing,), (grid,))


def _family(arm: ArmEntry) -> str:
    """What makes it cheaper, in a word or two."""
    kinds = [arm.selection.partition(" ")[0]] if arm.selection else []
    fewer = arm.schedule is not None and "S" in arm.schedule.pattern
    return " + ".join((["fewer layers"] if fewer else []) + kinds) or "full scan"


def _text(comparison: RunComparison) -> list[Table]:
    grid = table(comparison)
    return [] if grid is None else [Table(grid, (COUNTED,))]


PANEL = Panel(_section, _text)
