"""Comparison tables in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.analysis.compare import RunComparison
from evalkit.core.console import shown
from evalkit.core.grid import Grid
from evalkit.report.panels import PANELS
from evalkit.report.tables import notes, summary
from evalkit.report.verdict_text import LOOKS

if TYPE_CHECKING:
    from rich.console import Console

_STYLE = {word: look.style for word, look in LOOKS.items()}


def show(comparison: RunComparison, console: Console) -> None:
    """Print the summary, the panels and the notes; model output never reaches the terminal."""
    if comparison.tasks:
        show_grid(summary(comparison), console)
    for panel in PANELS.usable():
        for table in panel.text(comparison):
            show_grid(table.grid, console)
            for line in table.notes:
                console.print(f"· {line}", style="dim", markup=False)
    for line in notes(comparison):
        console.print(f"· {line}", style="dim", markup=False)


def show_grid(grid: Grid, console: Console) -> None:
    """Print one table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, title=Text(shown(grid.title)), title_justify="left", pad_edge=False
    )
    for i, name in enumerate(grid.head):
        right = i in grid.right
        table.add_column(Text(shown(name)), justify="right" if right else "left", no_wrap=right)
    for row in grid.rows:
        table.add_row(*(Text(shown(cell), style=_STYLE.get(cell, "")) for cell in row))
    console.print(table)
