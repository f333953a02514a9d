"""`distill plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.core.console import echo


def plan(
    target: Annotated[
        str, typer.Argument(help="Recipe (TOML), or a model's configuration: directory, hub id.")
    ],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override, for example arm.retention=1/8.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Another configuration than the recipe's model.")
    ] = None,
    hardware: Annotated[str, typer.Option(help="a100, h100, h200 or cpu.")] = "h200",
    devices: Annotated[int, typer.Option(min=1, help="How many.")] = 1,
    memory: Annotated[float | None, typer.Option(help="GiB of one device.")] = None,
    tflops: Annotated[float | None, typer.Option(help="bf16 TFLOP/s of one device.")] = None,
    efficiency: Annotated[float, typer.Option(help="Share of them that is reached.")] = 0.35,
    disk: Annotated[float, typer.Option(help="GB/s of the disk.")] = 2.0,
) -> None:
    """Memory, disk and time of a distillation, before anything runs."""
    from distill.config.train import DistillConfig
    from distill.cost.whole_model import HARDWARE, Hardware, estimate, report_lines
    from distill.errors import DistillError
    from distill.models.load import resolve_checkpoint
    from distill.models.sizes import meta_model, sizes_of
    from evalkit.core.model_info import model_config
    from evalkit.core.recipe import load, override

    if hardware not in HARDWARE:
        raise DistillError(
            f"hardware {hardware}: use {', '.join(HARDWARE)}, with --memory, --tflops"
        )
    recipe = Path(target)
    if recipe.suffix == ".toml":
        config = load(recipe, DistillConfig, set_ or ())
        name = model or resolve_checkpoint(config.model, recipe.resolve().parent)
    else:
        config = override({"model": target, "arm": {}}, DistillConfig, set_ or (), "plan")
        name = model or target
    path = Path(name).expanduser()
    configuration = model_config(str(path.parent) if path.name == "config.json" else name)
    sizes, native = sizes_of(meta_model(configuration))
    stored = int(getattr(getattr(configuration, "dtype", None), "itemsize", 2) or 2)
    itemsize = {"float32": 4, "float16": 2, "bfloat16": 2}.get(config.dtype, stored)
    device_memory, device_tflops = HARDWARE[hardware]
    on = Hardware(
        memory=memory or device_memory,
        tflops=tflops or device_tflops,
        efficiency=efficiency,
        disk=disk,
        devices=devices,
    )
    for line in report_lines(estimate(sizes, native, config, itemsize=itemsize), sizes, on):
        echo(line)
