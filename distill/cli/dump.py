"""`distill dump`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distill.cli.common import Device, Recipe, Set, load_recipe
from evalkit.core.console import open_console, open_progress


def dump(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(help="Directory of the dump.")],
    set_: Set = None,
    device: Device = None,
) -> None:
    """Run the model once; write what its indexers read, for `layerwise --dump`."""
    from distill.layerwise.dumper import dump_model
    from distill.layerwise.setup import default_device, load_layerwise_setup
    from distill.models.load import load_model

    config, console = load_recipe(recipe, set_), open_console()
    place = device or default_device()
    setup = load_layerwise_setup(config, recipe.resolve().parent, out, place)
    model = load_model(setup.name, config.dtype, place)
    with open_progress(console) as bar:
        task = bar.add_task("batches", total=len(setup.batches))
        dump_model(setup, model, out, lambda: bar.advance(task))
    layers = ", ".join(str(setup.schedule.layer_ids[i]) for i in sorted(setup.layers_read))
    console.print(f"dump of layers {layers}: {out}", markup=False)
