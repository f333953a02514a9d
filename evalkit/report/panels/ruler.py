"""RULER by length."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.report.charts.ruler import ruler
from evalkit.report.panels.base import Drawing, Panel, Section
from evalkit.report.plots import curves
from evalkit.run.store import RunStore


def _section(_: RunStore, comparison: RunComparison) -> Section:
    curve = Drawing(
        "ruler-by-length",
        "RULER score against length",
        lambda: curves.ruler_by_length(comparison),
        on_page=lambda: ruler(comparison),
    )
    return Section("RULER by length", drawings=(curve,))


PANEL = Panel(_section)
