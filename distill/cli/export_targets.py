"""`distill export-targets`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distill.cli.common import Device, Dump, Recipe, Set, load_recipe
from evalkit.core.console import open_console, open_progress


def export_targets(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(help="Directory of the targets.")],
    set_: Set = None,
    keys: Annotated[
        int | None, typer.Option(min=1, help="Keys kept per query; default: 4 x index_topk.")
    ] = None,
    device: Device = None,
    dump: Dump = None,
) -> None:
    """Write the consumers' merged targets, for trainers of your own."""
    from distill.layerwise.setup import default_device, load_layerwise_setup
    from distill.layerwise.targets import export_targets as export

    config, console = load_recipe(recipe, set_), open_console()
    place = device or default_device()
    setup = load_layerwise_setup(config, recipe.resolve().parent, out, place, dump)
    with open_progress(console) as bar:
        task = bar.add_task("layers", total=1 + max(setup.layers_read))
        done = export(setup, out, keys, lambda: bar.advance(task))
    console.print(f"{len(done.files)} files of layers {_listed(setup.trained_ids)}: {out}")
    if done.mass.weight:
        console.print(
            f"mass of the consumers' distributions on the kept keys: {done.mass.mean:.4f} on the"
            f" mean, {done.least:.4f} at the worst query"
        )


def _listed(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))
