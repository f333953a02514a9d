"""Heat maps of needle tests."""

from __future__ import annotations

from functools import partial

from evalkit.analysis.compare import RunComparison
from evalkit.report.charts.heat import end_of_scale, heat_maps
from evalkit.report.panels.base import Drawing, Panel, Section
from evalkit.report.plots.heatmap_sheet import needle_maps, sheet
from evalkit.run.store import RunStore, slug


def _section(store: RunStore, comparison: RunComparison) -> Section:
    names, base = [arm.name for arm in comparison.arms], comparison.result.baseline
    sections = {n: maps for n, maps in needle_maps(store, names).items() if base in maps}
    top = end_of_scale(sections.values(), base)
    drawings = tuple(
        Drawing(
            f"heatmaps-{slug(name)}",
            f"Heat maps of {name}",
            partial(sheet, maps, base),
            caption=name,
            on_page=partial(heat_maps, maps, base, top),
        )
        for name, maps in sections.items()
    )
    text = "The baseline's scores, and the difference of every arm to it."
    return Section("Needles by length and depth", text, drawings)


PANEL = Panel(_section)
