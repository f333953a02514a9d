"""How many answers there are, and what became of them."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.report.panels.base import Panel, Section
from evalkit.report.tables import counts
from evalkit.run.store import RunStore


def _section(_: RunStore, comparison: RunComparison) -> Section:
    text = "A failed generation scores 0 and stays in the denominator."
    return Section("Answers", text, tables=(counts(comparison),))


PANEL = Panel(_section)
