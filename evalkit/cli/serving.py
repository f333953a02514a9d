"""`evalkit check` and `evalkit bench`: arms on running servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Argument(help="Server, for example http://127.0.0.1:30000; without: only start lines."),
]
ArmName = Annotated[str | None, typer.Option(help="Arm of the recipe that the server is to run.")]
RecipeOption = Annotated[Path | None, typer.Option(help="Recipe (TOML) with the arm.")]
OutOption = Annotated[Path | None, typer.Option(help="Run directory; default: runs/<recipe name>.")]


def check(
    url: Url = None,
    recipe: RecipeOption = None,
    arm: ArmName = None,
    out: OutOption = None,
    log: Annotated[str | None, typer.Option(help="Log file of the server.")] = None,
) -> None:
    """What a server says of itself, and whether it runs an arm's schedule; exit code 2 if not."""
    from evalkit.cli.check import check_lines

    for line in check_lines(url, recipe, arm, out, log):
        typer.echo(line)


def bench(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML) with a section named bench.")],
    out: OutOption = None,
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
    from evalkit.cli.bench import bench as measure
    from evalkit.core.console import open_console

    measure(recipe, out, set_ or (), open_console(), add=add, again=again)
