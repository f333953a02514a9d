"""`distill export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.core.console import echo


def export(
    indexer: Annotated[Path, typer.Argument(help="Indexer directory that `distill train` wrote.")],
    base: Annotated[str, typer.Option(help="The model it was trained on: directory or hub id.")],
    out: Annotated[Path, typer.Option(help="Directory of the new checkpoint; must be empty.")],
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy untouched shards instead of hard-linking them.")
    ] = False,
) -> None:
    """Write a complete checkpoint that transformers, SGLang and vLLM load."""
    from distill.checkpoint.export import export_checkpoint

    done = export_checkpoint(indexer, base, out, copy=copy)
    shards = len(done.rewritten) + len(done.linked) + len(done.copied)
    echo(
        f"{done.tensors} tensors in {len(done.rewritten)} of {shards} shards"
        f" ({len(done.linked)} hard-linked, {len(done.copied)} copied unchanged)"
        + (f", {done.requantised} in FP8 with new scales" if done.requantised else "")
    )
    for name, value in done.settings.items():
        shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
        echo(f"config.json: {name} = {shown}")
    for note in done.notes:
        echo(f"note: {note}")
    echo(f"checkpoint: {done.directory}")
