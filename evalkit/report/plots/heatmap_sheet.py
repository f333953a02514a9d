"""All heat maps of a section on one sheet: every arm, and its difference to the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evalkit.analysis.grouping import benchmark_of
from evalkit.report.plots.heatmap import (
    Heat,
    difference,
    maps_of,
    paint,
    paint_difference,
    place_ticks,
    save,
)
from evalkit.report.plots.style import new_figure, plain
from evalkit.run.store import RunStore, slug

if TYPE_CHECKING:
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

COLUMNS = 5


def needle_maps(store: RunStore, names: Sequence[str]) -> dict[str, dict[str, Heat]]:
    """`maps_of` of the needle tests; of RULER's, whose depths are random, if there is no other."""
    sections = maps_of(store, names)
    needles = {name: maps for name, maps in sections.items() if benchmark_of(name) != "RULER"}
    return needles or sections


def write(store: RunStore, names: Sequence[str], baseline: str) -> list[Path]:
    """The sheets of a run's needle tests (RULER's are left to the whole report), PNG and SVG.

    Args:
        store: a scored run.
        names: arms.
        baseline: one of them.
    """
    files: list[Path] = []
    for section, maps in needle_maps(store, names).items():
        if baseline in maps and benchmark_of(section) != "RULER":
            path = store.path / "plots" / f"heatmaps-{slug(section)}"
            files += save(sheet(maps, baseline), path)
    return files


def sheet(maps: Mapping[str, Heat], baseline: str) -> Figure:
    """Small maps side by side.

    Args:
        maps: by arm, all of one section; cells of one position must mean the same.
        baseline: one of them; its own difference stays empty.
    """
    names = [baseline, *(name for name in maps if name != baseline)]
    columns = min(COLUMNS, len(names))
    bands = math.ceil(len(names) / columns)
    base = maps[baseline]
    depths, lengths = base.scores.shape
    width = max(1.7, min(4.5, 0.9 + 0.42 * lengths))
    figure = new_figure(1.6 + width * columns, bands * (2.2 + 0.4 * max(3, min(10, depths))))
    grid = figure.subplots(2 * bands, columns, squeeze=False)
    changes = [difference(maps[name], base) for name in names if _same(maps[name], base)]
    top = max([0.1, *(float(np.nanmax(np.abs(c), initial=0.0)) for c in changes)])
    images: dict[str, QuadMesh] = {}
    for k in range(bands * columns):
        above, below = (grid[2 * (k // columns) + half, k % columns] for half in (0, 1))
        if k >= len(names):
            above.set_visible(False)
            below.set_visible(False)
            continue
        name = names[k]
        images["score"] = paint(above, maps[name])
        above.set_title(plain(name), fontsize="small")
        if name == baseline or not _same(maps[name], base):
            below.set_visible(False)
        else:
            images["difference"] = paint_difference(below, difference(maps[name], base), top)
            below.set_title(plain(f"minus {baseline}"), fontsize="small")
        for axes in (above, below):
            place_ticks(axes, base)
            lowest = k + columns >= len(names) and (axes is below or not below.get_visible())
            axes.tick_params(labelsize="small", labelleft=k % columns == 0, labelbottom=lowest)
    labels = {"score": "score", "difference": "difference (hatched: worse)"}
    for kind, image in images.items():
        figure.colorbar(image, ax=grid, label=labels[kind], shrink=0.6, pad=0.02, aspect=30)
    figure.supxlabel(f"length ({base.unit})", fontsize="medium")
    figure.supylabel("depth of the needle (%)", fontsize="medium")
    return figure


def _same(one: Heat, other: Heat) -> bool:
    return (one.lengths, one.depths) == (other.lengths, other.depths)
