"""`distill layerwise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    from distill.config import DistillConfig
    from distill.layerwise.job import open_job
    from distill.layerwise.run import LayerwiseRun
    from evalkit.recipe import load

    config, where = load(recipe, DistillConfig, set_ or ()), out or Path("runs") / recipe.stem
    where.mkdir(parents=True, exist_ok=True)
    job = open_job(config, recipe.resolve().parent, where, device or _device())
    for warning in job.warnings:
        typer.echo(f"warning: {warning}")
    ids = job.layers.layout.layer_ids
    names = ", ".join(str(ids[f]) for f in job.trained)
    typer.echo(f"arm {job.schedule}: the indexers of layers {names} train")
    directory = LayerwiseRun(job, where, lambda kind, row: _say(kind, row, len(job.layers))).run()
    typer.echo(f"indexers: {directory}")


def _device() -> str:
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found.type if found is not None else "cpu"


def _say(kind: str, row: dict[str, Any], count: int) -> None:
    if kind == "layer":
        if row["original"]:
            at = f"original before layer {row['original']} of {count}, arm before {row['arm']}"
        else:
            at = f"original and undistilled arm before layer {row['judge']} of {count}"
        typer.echo(at)
    elif kind == "choice":
        scores = ", ".join(f"{name} {value:.3f}" for name, value in row["scores"].items())
        typer.echo(f"layer {row['layer']} from {row['chosen']} (logit KL: {scores})")
    elif kind == "judged":
        typer.echo(
            f"layer {row['layer']}, step {row['step']}: logit KL {row['logit_kl']:.4f},"
            f" recall {row['recall']:.3f}"
        )
    elif kind == "look":
        typer.echo(
            f"layer {row['layer']}, step {row['step']}: KL {row['kl']:.4f}, recall"
            f" {row['recall']:.3f} ({row['seconds']:.0f} s)"
        )
    elif kind == "probe":
        before, after = row["before"]["recall"], row["after"]["recall"]
        typer.echo(f"layer {row['layer']}: recall {before:.3f} -> {after:.3f}")
    elif kind == "warning":
        typer.echo(f"warning: {row['text']}")
    elif kind == "resume":
        typer.echo(f"resumed; done: {row['done'] or 'no layer'}")
