"""`evalkit cache`: answers that run directories share (`evalkit run --cache`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.core.console import echo
from evalkit.core.errors import EvalkitError


def cache(
    directory: Annotated[Path, typer.Argument(help="Folder given to `evalkit run --cache`.")],
    clear: Annotated[bool, typer.Option("--clear", help="Drop all answers.")] = False,
) -> None:
    """How many answers a cache holds, and how much of the disk; or clear it."""
    from evalkit.run.answer_cache import AnswerCache

    if not directory.is_dir():
        raise EvalkitError(f"{directory}: no such folder")
    answers = AnswerCache(directory)
    if clear:
        echo(f"{directory}: {answers.clear():,} answers dropped")
        return
    count, size = answers.size()
    echo(f"{directory}: {count:,} answers, {size / 1e6:,.1f} MB")
