"""Heat maps of needle tests."""

from __future__ import annotations

from functools import partial

from evalkit.analysis.compare import RunComparison
from evalkit.report.panels.base import Drawing, Panel, Section
from evalkit.report.plots.heatmap_sheet import needle_maps, sheet
from evalkit.run.store import RunStore, slug


def _section(store: RunStore, comparison: RunComparison) -> Section:
    names, base = [arm.name for arm in comparison.arms], comparison.result.baseline
    drawings = tuple(
        Drawing(
            f"heatmaps-{slug(name)}",
            f"Heat maps of {name}",
            partial(sheet, maps, base),
            caption=name,
        )
        for name, maps in needle_maps(store, names).items()
        if base in maps
    )
    text = "Every arm, and below it its difference to the baseline; hatched is worse."
    return Section("Needles by length and depth", text, drawings)


PANEL = Panel(_section)
