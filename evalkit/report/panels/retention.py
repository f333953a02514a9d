"""Quality against retention."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import by_benchmark
from evalkit.report.charts.retention import retention
from evalkit.report.panels.base import Drawing, Panel, Section
from evalkit.report.plots import curves
from evalkit.run.store import RunStore


def _section(_: RunStore, comparison: RunComparison) -> Section:
    text = (
        "One line per family of arms, with the paired interval of each: where it lies above the"
        " dashed line, a loss as large as the margin is excluded."
    )
    curve = Drawing(
        "retention",
        "Score against retention, one line per family of arms, with interval bands",
        lambda: curves.retention_curves(comparison, by_benchmark(comparison)),
        on_page=lambda: retention(comparison),
    )
    return Section("Quality against retention", text, (curve,))


PANEL = Panel(_section)
