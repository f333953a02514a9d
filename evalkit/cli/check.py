"""`evalkit check`: does a running server run an arm's schedule?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.cli.common import Out
from evalkit.core.console import echo

Url = Annotated[
    str | None,
    typer.Argument(help="Server, for example http://127.0.0.1:30000; without: only start lines."),
]


def check(
    url: Url = None,
    recipe: Annotated[Path | None, typer.Option(help="Recipe (TOML) with the arm.")] = None,
    arm: Annotated[
        str | None, typer.Option(help="Arm of the recipe that the server is to run.")
    ] = None,
    out: Out = None,
    log: Annotated[str | None, typer.Option(help="Log file of the server.")] = None,
) -> None:
    """What a server reports, and whether it runs an arm's schedule; exit code 2 if not."""
    from evalkit.cli.check_text import check_lines

    for line in check_lines(url, recipe, arm, out, log):
        echo(line)
