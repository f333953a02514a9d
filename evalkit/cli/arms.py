"""`evalkit arms`: what a run directory holds, arm by arm; take one out, or rename it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from evalkit.cli.common import RunDir
from evalkit.core.command_line import command_group
from evalkit.core.console import open_console
from evalkit.core.grid import Grid

if TYPE_CHECKING:
    from evalkit.core.records import ArmEntry

app = command_group("List, remove or rename the arms of a run directory.")

Name = Annotated[str, typer.Argument(help="Name of the arm.")]


@app.command("list")
def list_(directory: RunDir) -> None:
    """Every arm with where its answers are from, and how many there are."""
    from evalkit.report.terminal import show_grid
    from evalkit.run.store import RunStore

    store = RunStore(directory)
    run = store.read_run()
    rows = []
    for arm in run.arms:
        every = store.read_samples(arm.name)
        answers = [every[i] for i in every.keys() - run.taken_out(every)]
        failed = sum(row.failed for row in answers)
        rows.append((arm.name, _origin(arm), f"{len(answers)} of {run.planned}", str(failed)))
    grid = Grid(str(store.path), ("arm", "from", "answers", "failed"), tuple(rows), (2, 3))
    show_grid(grid, open_console())


@app.command()
def remove(directory: RunDir, name: Name) -> None:
    """Take an arm and its answers out of a run."""
    from evalkit.run.arms import remove_arm
    from evalkit.run.store import RunStore

    store = RunStore(directory)
    store.read_run()
    with store.lock():
        remove_arm(store, name)
    typer.echo(f"{name} and its answers are gone; evalkit compare {directory} prints the others")


@app.command()
def rename(
    directory: RunDir, name: Name, new: Annotated[str, typer.Argument(help="Its new name.")]
) -> None:
    """Call an arm otherwise, here; its recipe has to be edited by hand."""
    from evalkit.run.arms import rename_arm
    from evalkit.run.store import RunStore

    store = RunStore(directory)
    store.read_run()
    with store.lock():
        rename_arm(store, name, new)
    typer.echo(f"{name} is called {new}")


def _origin(arm: ArmEntry) -> str:
    if arm.imported is not None:
        return f"imported ({arm.imported.format}): {arm.imported.source}"
    return ", ".join(part for part in (arm.model, arm.acts_text) if part) or "not begun"
