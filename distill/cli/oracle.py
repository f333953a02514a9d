"""`distill oracle`."""

from __future__ import annotations

from typing import Annotated

import typer

from distill.cli.common import Out, Recipe, Set, load_recipe, run_directory
from evalkit.core.console import open_console


def oracle(
    recipe: Recipe,
    out: Out = None,
    set_: Set = None,
    tail: Annotated[float, typer.Option(help="Share of positions of the second column.")] = 0.05,
    each: Annotated[
        bool, typer.Option("--each", help="Try every consumer alone too: minutes, not one.")
    ] = False,
) -> None:
    """What an arm could give: selections that know what the consumers want, before any training."""
    from distill.setup import open_session
    from distill.validation.oracle_bound import ceiling_table, ceilings

    config, console = load_recipe(recipe, set_), open_console()
    session = open_session(config, recipe.resolve().parent, run_directory(recipe, out) / "data")
    with console.status("oracle selections"):
        rows = ceilings(session, tail, each=each)
    console.print(ceiling_table(rows, tail, str(session.schedule)))
