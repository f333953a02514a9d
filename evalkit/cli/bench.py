"""`evalkit bench`: speed of every arm, joined with the quality in the same run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.cli.common import Out


def bench(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML) with a section named bench.")],
    out: Out = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override, for example bench.requests=64.")
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Keep the last measurement, add the arms that are there.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Print the last measurement with the quality of now.")
    ] = False,
) -> None:
    """Speed of every arm on its servers, beside the quality of the same run directory."""
    from evalkit.bench import report as reports
    from evalkit.bench.runner import measure_arms, stored
    from evalkit.config.run import RunConfig
    from evalkit.core.console import open_console
    from evalkit.core.errors import Interrupted
    from evalkit.core.recipe import load
    from evalkit.report.terminal import show_grid
    from evalkit.run.store import RunStore

    console = open_console()
    config = load(recipe, RunConfig, set_ or ())
    store = RunStore(out or Path("runs") / recipe.stem)
    with store.lock():
        if not again:
            try:
                say = lambda line: console.print(line, style="dim", markup=False)  # noqa: E731
                measure_arms(config, recipe.resolve().parent, store, say, add=add)
            except KeyboardInterrupt:
                raise Interrupted("nothing is reported; run it again") from None
        facts, rounds = stored(store)
        report = reports.build(facts, rounds, store)
        reports.write(store, report)
    show_grid(reports.decisions(report), console)
    show_grid(reports.measures(report), console)
    for line in reports.notes(report):
        console.print(f"· {line}", style="dim", markup=False)
    console.print(f"records: {store.path}", style="dim", highlight=False)
