"""What the commands of `distill` share: their arguments, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distill.config.train import DistillConfig

Recipe = Annotated[Path, typer.Argument(help="Recipe (TOML), see recipes/distill.")]
Out = Annotated[Path | None, typer.Option(help="Directory; default: runs/<recipe name>.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override, for example train.steps=40.")
]


def load_recipe(recipe: Path, overrides: list[str] | None) -> DistillConfig:
    """The recipe with its overrides."""
    from distill.config.train import DistillConfig
    from evalkit.core.recipe import load

    return load(recipe, DistillConfig, overrides or ())


def run_directory(recipe: Path, out: Path | None) -> Path:
    """Where a command writes; made if absent."""
    directory = out or Path("runs") / recipe.stem
    directory.mkdir(parents=True, exist_ok=True)
    return directory
