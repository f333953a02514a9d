"""Shard the frozen model over processes (FSDP2): each holds its share, layers gather as they run.

Switched on by `accelerate launch --config_file recipes/accelerate/fsdp2.yaml`. The students stay
whole in every process: they are small, and the trainer sums their gradients itself. Embeddings and
head stay whole too, because predictions are compared outside of forwards.
"""

from __future__ import annotations

import os
from typing import cast

import torch
from torch import nn

from distill.config.train import DistillConfig
from distill.errors import DistillError
from distill.setup import TrainingSetup


def wanted() -> bool:
    """Whether accelerate was told to shard."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true", "yes")


def check(config: DistillConfig, processes: int) -> None:
    """Every process must run the same number of forwards, or they wait for each other for ever.

    Raises:
        DistillError: the recipe shares out unevenly.
    """
    train = config.train
    batches = -(-config.data.held_out // train.micro_batch)
    if train.batch % processes:
        raise DistillError(
            f"train.batch {train.batch} does not divide by {processes} processes, which sharding"
            " needs"
        )
    if batches % processes:
        raise DistillError(
            f"data.held_out {config.data.held_out} makes {batches} batches of {train.micro_batch}:"
            f" sharding needs a multiple of {processes}"
        )


def shard(setup: TrainingSetup, device: torch.device) -> None:
    """Shard the decoder layers in place over all processes; everything else moves to `device`.

    Args:
        setup: loaded on the CPU, so that no device ever holds the whole model.
        device: of this process.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    check(setup.config, dist.get_world_size())
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    root = setup.sites.root
    for layer in cast(nn.ModuleList, root.layers):
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    for name, child in root.named_children():
        if name != "layers":
            child.to(device)
    setup.model.get_output_embeddings().to(device)
    for student in setup.students.modules.values():
        student.to(device)
