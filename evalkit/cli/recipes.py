"""`evalkit recipes` and `evalkit demo`: what ships with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.core.console import echo


def recipes(
    directory: Annotated[
        Path | None, typer.Argument(help="New folder to copy all of them to, with what they name.")
    ] = None,
) -> None:
    """List the recipes that ship with the package, or copy them."""
    from evalkit.data.shipped import copy_recipes, recipes_dir, shipped_recipes

    if directory is not None:
        copy_recipes(directory)
        echo(f"{directory}: recipes, the small model and what they name")
        return
    rows = shipped_recipes()
    width = max(len(row.name) for row in rows)
    for row in rows:
        echo(f"{row.name:<{width}}  {row.text}")
    echo(f"\nin {recipes_dir()}; evalkit recipes DIR copies them")


def demo(
    out: Annotated[Path, typer.Option(help="Run directory.")] = Path("runs/demo"),
    limit: Annotated[int | None, typer.Option(help="First N samples of every task.")] = None,
) -> None:
    """Retention and lag on the small model that ships, with a report: minutes on two cores."""
    from evalkit.cli.report import report
    from evalkit.cli.run import run
    from evalkit.data.shipped import recipes_dir

    run(recipes_dir() / "eval" / "demo.toml", out=out, limit=limit)
    report([out])
