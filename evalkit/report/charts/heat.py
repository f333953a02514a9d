"""Heat maps of needle tests: lengths × depths, differences of all arms on one scale.

With one length the arms themselves are the rows, so that the map uses its width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from evalkit.report.charts.template import render
from evalkit.report.plots.heatmap import NUMBERS, Heat, difference, short

LEAST = 10.0
"""Points at the end of the scale of differences, at least."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        text: what stands in it; empty in a large map.
        title: what it says when pointed at.
        look: ``score``, ``worse``, ``better``, ``equal`` or ``none``.
        share: how strong its colour is, 0 to 1.
    """

    text: str
    title: str
    look: str
    share: float


@dataclass(frozen=True, slots=True)
class Map:
    """One table of cells.

    Attributes:
        title: above it.
        corner: what rows and columns are.
        columns: names.
        rows: name and cells.
    """

    title: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]


def end_of_scale(sections: Iterable[Mapping[str, Heat]], baseline: str) -> float:
    """The largest difference in points that any map shows."""
    changes = [c for maps in sections for c in _changes(maps, baseline).values()]
    return max([LEAST, *(float(np.nanmax(np.abs(c), initial=0.0)) for c in changes)])


def heat_maps(maps: Mapping[str, Heat], baseline: str, top: float) -> Markup:
    """The baseline's scores, and every other arm's difference to them.

    Args:
        maps: by arm, all of one section.
        baseline: one of them.
        top: end of the scale of differences, in points.
    """
    base, changes = maps[baseline], _changes(maps, baseline)
    if len(base.lengths) == 1:
        shown = [_by_arm(maps, base, baseline, changes, top)]
    else:
        shown = [_map(f"{baseline}: score", base, _scores(base))]
        shown += [
            _map(f"{name} − {baseline}", base, _differences(maps[name], base, change, top))
            for name, change in changes.items()
        ]
    return render("heat.html.j2", maps=shown, top=f"{top:.0f}", counts=_counts(maps))


def _changes(maps: Mapping[str, Heat], baseline: str) -> dict[str, NDArray[np.float64]]:
    """Differences in points of the arms that were asked at the same places."""
    base = maps[baseline]
    return {
        name: 100 * difference(cells, base)
        for name, cells in maps.items()
        if name != baseline and _places(cells) == _places(base)
    }


def _places(cells: Heat) -> tuple[Sequence[int], Sequence[float]]:
    return cells.lengths, cells.depths


def _counts(maps: Mapping[str, Heat]) -> str:
    """Samples of a cell, in words."""
    counts = [int(n) for cells in maps.values() for n in cells.counts.flat if n]
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low}" if low == high else f"{low} to {high}"


def _by_arm(
    maps: Mapping[str, Heat],
    base: Heat,
    baseline: str,
    changes: Mapping[str, NDArray[np.float64]],
    top: float,
) -> Map:
    """One length: a row for every arm, a column for every depth."""
    rows = [(f"{baseline}: score", [row[0] for row in _scores(base)])]
    for name, change in changes.items():
        cells = _differences(maps[name], base, change, top)
        rows.append((f"{name}: Δ", [row[0] for row in cells]))
    title = f"length {short(base.lengths[0])} {base.unit}"
    return Map(title, "depth", [f"{depth:.3g} %" for depth in base.depths], rows)


def _map(title: str, cells: Heat, shown: list[list[Cell]]) -> Map:
    rows = [(f"{depth:.3g} %", row) for depth, row in zip(cells.depths, shown, strict=True)]
    return Map(title, "depth", [short(length) for length in cells.lengths], rows)


def _scores(cells: Heat) -> list[list[Cell]]:
    return [
        [_score(cells, y, x) for x in range(len(cells.lengths))] for y in range(len(cells.depths))
    ]


def _score(cells: Heat, y: int, x: int) -> Cell:
    value, n = 100 * float(cells.scores[y, x]), int(cells.counts[y, x])
    if not n:
        return Cell("×", "nothing was asked", "none", 0.0)
    title = f"{_where(cells, y, x)}: {value:.1f} (n = {n})"
    return Cell(_number(cells, f"{value:.0f}"), title, "score", round(value / 100, 2))


def _differences(
    cells: Heat, base: Heat, change: NDArray[np.float64], top: float
) -> list[list[Cell]]:
    rows = []
    for y in range(len(cells.depths)):
        row = []
        for x in range(len(cells.lengths)):
            value = float(change[y, x])
            if np.isnan(value):
                row.append(Cell("×", "not asked of both alike", "none", 0.0))
                continue
            look = "equal" if round(value, 1) == 0 else "worse" if value < 0 else "better"
            text = f"{value:+.0f}".replace("-", "−")
            text = "0" if text in ("+0", "−0") else text
            title = (
                f"{_where(cells, y, x)}: {100 * cells.scores[y, x]:.1f} against"
                f" {100 * base.scores[y, x]:.1f} (n = {cells.counts[y, x]})"
            )
            row.append(Cell(_number(cells, text), title, look, round(abs(value) / top, 2)))
        rows.append(row)
    return rows


def _where(cells: Heat, y: int, x: int) -> str:
    return f"length {cells.lengths[x]:,}, depth {cells.depths[y]:.3g} %"


def _number(cells: Heat, text: str) -> str:
    """Large maps carry no numbers."""
    return text if max(len(cells.lengths), len(cells.depths)) <= NUMBERS else ""
