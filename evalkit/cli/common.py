"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Recipe = Annotated[Path, typer.Argument(help="Recipe (TOML), see `evalkit recipes`.")]
RunDir = Annotated[Path, typer.Argument(help="Run directory.")]
Out = Annotated[Path | None, typer.Option(help="Run directory; default: runs/<recipe name>.")]
Baseline = Annotated[
    str | None, typer.Option(help="Arm to compare with; default: the recipe's, else the first.")
]
