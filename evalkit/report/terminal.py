"""Comparison tables in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.analysis.compare import RunComparison
from evalkit.report import stopping
from evalkit.report.overlap import beside_quality
from evalkit.report.tables import Grid, by_task, notes, summary

if TYPE_CHECKING:
    from rich.console import Console

_STYLE = {"no worse": "green", "worse": "red", "undecided": "yellow", "baseline": "dim"}


def show(comparison: RunComparison, console: Console) -> None:
    """Print the summary, the tasks and the notes; model output never reaches the terminal."""
    from rich.text import Text

    tasks = by_task(comparison)
    if comparison.until_decided is not None:
        show_grid(stopping.table(comparison.until_decided), console)
        console.print(Text(f"· {stopping.saved(comparison.until_decided)}", style="dim"))
    show_grid(summary(comparison), console)
    if len(comparison.tasks) > 1:
        show_grid(tasks, console)
    for found in comparison.summaries:
        show_grid(found.grid, console)
        for line in found.notes:
            console.print(Text(f"· {line}", style="dim"))
    beside = beside_quality(comparison)
    if beside is not None:
        show_grid(beside, console)
    for line in notes(comparison):
        console.print(Text(f"· {line}", style="dim"))


def show_grid(grid: Grid, console: Console) -> None:
    """Print one table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=Text(grid.title), title_justify="left", pad_edge=False)
    for i, name in enumerate(grid.head):
        right = i in grid.right
        table.add_column(Text(name), justify="right" if right else "left", no_wrap=right)
    for row in grid.rows:
        table.add_row(*(Text(cell, style=_STYLE.get(cell, "")) for cell in row))
    console.print(table)
