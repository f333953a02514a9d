"""`distill layerwise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def layerwise(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML), see recipes/distill.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory; default: runs/<recipe name>.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override, for example train.steps=40.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, npu …; default: what is there.")
    ] = None,
) -> None:
    """`train` for models that do not fit: one decoder layer in memory, hidden states on disk."""
    from distill.config.train import DistillConfig
    from distill.layerwise.pipeline import LayerwiseRun
    from distill.layerwise.progress_bar import Screen
    from distill.layerwise.setup import open_job
    from evalkit.core.console import open_console
    from evalkit.core.recipe import load

    config, where = load(recipe, DistillConfig, set_ or ()), out or Path("runs") / recipe.stem
    where.mkdir(parents=True, exist_ok=True)
    job = open_job(config, recipe.resolve().parent, where, device or _device())
    console = open_console()
    screen = Screen(job, console)
    with screen.bar:
        directory = LayerwiseRun(job, where, screen.on_event).run()
    console.print(f"indexers: {directory}", markup=False)


def _device() -> str:
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found.type if found is not None else "cpu"
