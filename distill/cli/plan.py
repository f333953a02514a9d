"""`distill plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


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
    from distill.config.train import DistillConfig, resolve_model
    from distill.cost.whole_model import HARDWARE, estimate, lines
    from distill.errors import DistillError
    from distill.models.sizes import shape_of, without_memory
    from evalkit.core.recipe import load, override

    if hardware not in HARDWARE:
        raise DistillError(
            f"hardware {hardware}: use {', '.join(HARDWARE)}, with --memory, --tflops"
        )
    recipe = Path(target)
    if recipe.suffix == ".toml":
        config = load(recipe, DistillConfig, set_ or ())
        name = model or resolve_model(config.model, recipe.resolve().parent)
    else:
        config = override({"model": target, "arm": {}}, DistillConfig, set_ or (), "plan")
        name = model or target
    found = _configuration(name)
    shape, native = shape_of(without_memory(found))
    itemsize = {"float32": 4, "float16": 2, "bfloat16": 2}.get(config.dtype, _itemsize(found))
    room, speed = HARDWARE[hardware]
    result = estimate(shape, native, config, itemsize=itemsize)
    for line in lines(
        result, shape, memory=(memory or room) * devices, tflops=(tflops or speed) * devices,
        efficiency=efficiency, disk=disk,
    ):  # fmt: skip
        typer.echo(line)


def _configuration(name: str) -> Any:
    from transformers import AutoConfig

    from distill.errors import DistillError

    path = Path(name).expanduser()
    try:
        return AutoConfig.from_pretrained(path.parent if path.name == "config.json" else name)
    except (OSError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistillError(f"model {name}: no configuration: {first}") from None


def _itemsize(config: Any) -> int:
    dtype = getattr(config, "dtype", None)
    return int(getattr(dtype, "itemsize", 2) or 2)
