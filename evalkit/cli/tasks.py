"""`evalkit tasks`: what a recipe can name."""

from __future__ import annotations

from evalkit.core.console import echo


def tasks() -> None:
    """List the tasks that a recipe can name; those of other packages name their package."""
    from evalkit.tasks.registry import describe

    rows = describe()
    kinds, names = (max(len(row[i]) for row in rows) for i in (0, 1))
    for kind, name, text, package in rows:
        source = f"  [{package}]" if package else ""
        echo(f"{kind:<{kinds}}  {name:<{names}}  {text}{source}")
