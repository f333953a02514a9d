"""The schedule of every arm, layer by layer."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.report.charts.schedules import schedules
from evalkit.report.panels.base import Drawing, Panel, Section
from evalkit.report.plots import curves
from evalkit.run.store import RunStore


def _section(_: RunStore, comparison: RunComparison) -> Section:
    strips = Drawing(
        "schedules",
        "Schedule of every arm, layer by layer: full or shared, and which layer is read",
        lambda: curves.schedules(comparison),
        on_page=lambda: schedules(comparison),
    )
    text = "In prefill a lag does not act, unless the schedule says phase=all."
    return Section("Schedules", text, (strips,))


PANEL = Panel(_section)
