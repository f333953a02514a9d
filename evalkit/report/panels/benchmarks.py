"""What the benchmarks themselves report."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.report.panels.base import Panel, Section, Table
from evalkit.run.store import RunStore


def _section(_: RunStore, comparison: RunComparison) -> Section:
    notes = " ".join(f"{line}." for summary in comparison.summaries for line in summary.notes)
    grids = tuple(summary.grid for summary in comparison.summaries)
    return Section("What the benchmarks report", notes, tables=grids)


def _text(comparison: RunComparison) -> list[Table]:
    return [Table(summary.grid, summary.notes) for summary in comparison.summaries]


PANEL = Panel(_section, _text)
