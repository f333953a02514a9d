"""`distill layerwise`."""

from __future__ import annotations

from distill.cli.common import (
    Device,
    Dump,
    Out,
    Recipe,
    SaveAnyway,
    Set,
    end_without_gain,
    load_recipe,
    run_directory,
)


def layerwise(
    recipe: Recipe,
    out: Out = None,
    set_: Set = None,
    device: Device = None,
    dump: Dump = None,
    save_anyway: SaveAnyway = False,
) -> None:
    """`train` for models that do not fit: one decoder layer in memory, hidden states on disk."""
    from distill.cost.layerwise import layerwise_cost
    from distill.layerwise.pipeline import LayerwiseRun
    from distill.layerwise.setup import default_device, load_layerwise_setup
    from distill.models.sizes import sizes_of
    from distill.training.progress_bar import LAYERS_READ, ProgressDisplay
    from evalkit.core.console import open_console

    config, directory = load_recipe(recipe, set_), run_directory(recipe, out)
    place = device or default_device()
    setup = load_layerwise_setup(config, recipe.resolve().parent, directory, place, dump)
    bars = {}
    if dump is None:
        sizes, native = sizes_of(setup.model)
        cost = layerwise_cost(sizes, native, setup.schedule, setup.trained, config, itemsize=2)
        bars[LAYERS_READ] = cost.layers_read
    console = open_console()
    with ProgressDisplay(setup, console, bars) as display:
        run = LayerwiseRun(setup, directory, display.on_event)
        indexer = run.run(save_anyway=save_anyway)
    if indexer is None:
        end_without_gain(run.state, config.choice.checkpoint)
    console.print(f"indexers: {indexer}", markup=False)
