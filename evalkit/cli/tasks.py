"""`evalkit tasks`: what a recipe can name."""

from __future__ import annotations

import typer


def tasks() -> None:
    """List the tasks that a recipe can name."""
    from evalkit.tasks.registry import describe

    rows = list(describe())
    kinds, names = (max(len(row[i]) for row in rows) for i in (0, 1))
    for kind, name, text in rows:
        typer.echo(f"{kind:<{kinds}}  {name:<{names}}  {text}")
