"""Score, difference and interval of every task."""

from __future__ import annotations

from evalkit.analysis.compare import RunComparison
from evalkit.report.charts.multiples import multiples
from evalkit.report.panels.base import Drawing, Panel, Section, Table
from evalkit.report.plots import curves
from evalkit.report.tables import by_task
from evalkit.run.store import RunStore


def _section(_: RunStore, comparison: RunComparison) -> Section:
    names = curves.worse_first(comparison)
    if not names:
        return Section("By task", tables=(by_task(comparison),))
    forest = Drawing(
        "differences",
        "Difference to the baseline per task with intervals, one panel per arm",
        lambda: curves.forest(comparison, names),
        on_page=lambda: multiples(comparison),
    )
    text = (
        "Difference to the baseline in points, all tasks on one scale. Circle: no worse. Triangle:"
        " better. Square: worse. Diamond: undecided. Cross: withheld."
    )
    return Section("Differences by task", text, (forest,), (by_task(comparison),))


def _text(comparison: RunComparison) -> list[Table]:
    return [Table(by_task(comparison))] if len(comparison.tasks) > 1 else []


PANEL = Panel(_section, _text)
