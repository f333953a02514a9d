"""Quality against retention."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import by_benchmark
from evalkit.report.panels.base import Drawing, Panel, Section
from evalkit.report.plots import curves
from evalkit.run.store import RunStore


def _section(_: RunStore, comparison: RunComparison) -> Section:
    text = (
        "One line per family. Bands are the paired intervals, laid around the baseline's score:"
        " where a band leaves the grey line, the difference is beyond chance."
    )
    curve = Drawing(
        "retention",
        "Score against retention, one line per family of arms, with interval bands",
        lambda: curves.retention_curves(comparison, by_benchmark(comparison)),
    )
    return Section("Quality against retention", text, (curve,))


PANEL = Panel(_section)
