"""Score against relative index cost, with the frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from evalkit.analysis.compare import RunComparison
from evalkit.report.plots.labels import label_points
from evalkit.report.plots.style import COLOURS, MARKERS, new_figure, plain
from evalkit.stats import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Point:
    """One arm.

    Attributes:
        arm: its name.
        family: what makes it cheaper.
        cost: relative to the full scan, above 0.
        row: its macro average.
        frontier: whether no other arm has at least its score at no more cost.
    """

    arm: str
    family: str
    cost: float
    row: Row
    frontier: bool


def draw(comparison: RunComparison, points: Sequence[Point]) -> Figure | None:
    """Points with their paired intervals, laid around the baseline's score as in other plots."""
    rows = [point.row for point in points if point.arm == comparison.result.baseline]
    if len(points) < 2 or not rows:
        return None
    base = rows[0].score or 0.0
    figure = new_figure(8.6, 5.2)
    axes = figure.add_subplot()
    axes.axhline(base, color=COLOURS[-1], lw=1)
    front = sorted((p for p in points if p.frontier), key=lambda p: p.cost)
    steps = [(math.log2(p.cost), _score(p, base)) for p in front]
    axes.plot(*zip(*steps, strict=True), color=COLOURS[-1], lw=1.4, ls="--", label="frontier")
    lines = [((math.log2(min(p.cost for p in points)) - 1, base), (0.5, base))]
    for k, family in enumerate(dict.fromkeys(point.family for point in points)):
        group = [point for point in points if point.family == family]
        colour = COLOURS[k % 6]
        x, y = [math.log2(p.cost) for p in group], [_score(p, base) for p in group]
        axes.plot(x, y, color=colour, marker=MARKERS[k % 7], ms=6, ls="", label=plain(family))
        for point, at in zip(group, x, strict=True):
            result = point.row.result
            if result is not None:
                low, high = max(0.0, base + result.low), min(1.0, base + result.high)
                axes.vlines(at, low, high, color=colour, lw=1, alpha=0.7)
                lines.append(((at, low), (at, high)))
    lowest = math.floor(min(math.log2(point.cost) for point in points))
    ticks = range(0, lowest - 1, -1)
    axes.set_xticks(list(ticks), [str(Fraction(2) ** tick) for tick in ticks])
    axes.invert_xaxis()
    axes.set_xlabel("cost of a decode step relative to the full scan (products × key bits / 16)")
    axes.set_ylabel("score")
    axes.grid(True, alpha=0.6)
    bottom, top = axes.get_ylim()
    axes.set_yticks([tick for tick in axes.get_yticks() if bottom <= tick < 1.01])
    axes.set_ylim(bottom - 0.1 * (top - bottom), top + 0.2 * (top - bottom))  # for names
    figure.legend(loc="outside upper center", ncols=4)
    names = [(plain(p.arm), math.log2(p.cost), _score(p, base)) for p in points]
    label_points(figure, axes, sorted(names, key=lambda name: name[1:]), lines)
    return figure


def _score(point: Point, base: float) -> float:
    return base + point.row.result.delta if point.row.result else base
