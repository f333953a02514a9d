"""`evalkit check` and `evalkit bench`: arms on running servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[str, typer.Argument(help="Server, for example http://127.0.0.1:30000.")]
ArmName = Annotated[str | None, typer.Option(help="Arm of the recipe that the server is to run.")]
RecipeOption = Annotated[Path | None, typer.Option(help="Recipe (TOML) with the arm.")]
OutOption = Annotated[Path | None, typer.Option(help="Run directory; default: runs/<recipe name>.")]


def check(
    url: Url,
    recipe: RecipeOption = None,
    arm: ArmName = None,
    out: OutOption = None,
    log: Annotated[str | None, typer.Option(help="Log file of the server.")] = None,
) -> None:
    """What a server says of itself, and whether it runs an arm's schedule; exit code 2 if not."""
    from evalkit.serving.commands import check_lines

    for line in check_lines(url, recipe, arm, out, log):
        typer.echo(line)
