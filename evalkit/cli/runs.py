"""`evalkit runs`: the run directories below a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evalkit.core.console import echo, open_console
from evalkit.core.grid import Grid

if TYPE_CHECKING:
    from evalkit.analysis.run_list import ListedRun


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder that is searched.")] = Path("runs"),
) -> None:
    """When, which model and arms, which verdicts, finished or not."""
    from evalkit.analysis.run_list import list_runs
    from evalkit.report.terminal import show_grid

    listed = list_runs(folder)
    if not listed:
        echo(f"{folder}: no run directory")
        return
    head = ("run", "when", "model", "arms", "verdicts", "answers")
    rows = tuple(_row(run, folder) for run in listed)
    show_grid(Grid(str(folder), head, rows), open_console())


def _row(run: ListedRun, folder: Path) -> tuple[str, ...]:
    name = run.path.relative_to(folder).as_posix()
    when = f"{run.when:%Y-%m-%d %H:%M}"
    if run.fault:
        return (name, when, "", "", "", run.fault)
    none = "none" if run.compared else "not compared yet"
    counts = f"{run.answered:,} of {run.planned:,}"
    return (
        name,
        when,
        ", ".join(run.models),
        str(len(run.arms)),
        "; ".join(f"{arm}: {verdict}" for arm, verdict in run.verdicts) or none,
        "finished" if run.finished else f"unfinished, {counts}",
    )
