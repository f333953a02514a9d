"""What ships with the package: recipes, the small model, its words and distilled indexers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from evalkit.core.errors import EvalkitError
from evalkit.core.files import writing

FOLDERS = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[2] / "recipes")
"""In an installed package, and in a checkout."""

NOT_COPIED = ("*.py", "__pycache__")
"""What trained the small model runs in a checkout only."""


class ShippedRecipe(NamedTuple):
    """A recipe that ships.

    Attributes:
        name: its path below `recipes_dir`.
        text: what it says about itself, on one line.
    """

    name: str
    text: str


def recipes_dir() -> Path:
    """The folder of the shipped recipes; raises EvalkitError where the package lost it."""
    folder = next((folder for folder in FOLDERS if (folder / "eval").is_dir()), None)
    if folder is None:
        raise EvalkitError(f"{FOLDERS[0]}: the recipes are missing: install the package again")
    return folder


def shipped_recipes() -> list[ShippedRecipe]:
    """All of them, by name."""
    folder = recipes_dir()
    return [
        ShippedRecipe(path.relative_to(folder).as_posix(), _about(path))
        for path in sorted(folder.rglob("*.toml"))
    ]


def copy_recipes(target: Path) -> None:
    """Copy everything into a new folder, where the recipes run as they are.

    Raises:
        EvalkitError: the folder is there already, or cannot be written.
    """
    if target.exists():
        raise EvalkitError(f"{target} is there already: name a folder that is not")
    with writing(target):
        shutil.copytree(recipes_dir(), target, ignore=shutil.ignore_patterns(*NOT_COPIED))


def _about(path: Path) -> str:
    """The first sentence of the comment that a recipe begins with."""
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words += line.strip("# ").split()
        if words and words[-1].endswith((".", "?", ":")):
            break
    text = " ".join(words)
    ends = [at for mark in (". ", "? ", "; ") if (at := text.find(mark)) > 0]
    return text[: min(ends) + 1].rstrip(";") if ends else text
