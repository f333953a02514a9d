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
    """Upper bound with oracle selections, before any training."""
    from distill.setup import load_training_setup
    from distill.validation.oracle_bound import oracle_bounds, oracle_table

    config, console = load_recipe(recipe, set_), open_console()
    data_dir = run_directory(recipe, out) / "data"
    setup = load_training_setup(config, recipe.resolve().parent, data_dir)
    with console.status("oracle selections"):
        bounds = oracle_bounds(setup, tail, each=each)
    console.print(oracle_table(bounds, tail, str(setup.schedule)))
