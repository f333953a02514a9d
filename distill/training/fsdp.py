"""Shard the frozen model over processes (FSDP2): each holds its share, layers gather as they run.

Switched on by `accelerate launch --config_file recipes/accelerate/fsdp2.yaml`. The students stay
whole in every process: they are small, and the trainer sums their gradients itself. Embeddings and
head stay whole too, because predictions are compared outside of forwards.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from distill.config.train import DistillConfig
from distill.errors import DistillError
from distill.setup import Session


def wanted() -> bool:
    """Whether accelerate was told to shard."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true", "yes")


def check(config: DistillConfig, processes: int) -> None:
    """Every process must run the same number of forwards, or they wait for each other for ever.

    Raises:
        DistillError: the recipe shares out unevenly.
    """
    train = config.train
    looks = -(-config.data.held_out // train.micro_batch)
    if train.batch % processes:
        raise DistillError(
            f"train.batch {train.batch} does not divide by {processes} processes, which sharding"
            " needs"
        )
    if looks % processes:
        raise DistillError(
            f"data.held_out {config.data.held_out} makes {looks} batches of {train.micro_batch}:"
            f" sharding needs a multiple of {processes}"
        )


def shard(session: Session, device: torch.device) -> None:
    """Shard the decoder layers in place over all processes; everything else moves to `device`.

    Args:
        session: loaded on the CPU, so that no device ever holds the whole model.
        device: of this process.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    check(session.config, dist.get_world_size())
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    root: Any = session.where.root
    for layer in root.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    for name, child in root.named_children():
        if name != "layers":
            child.to(device)
    session.model.get_output_embeddings().to(device)
    for student in session.students.modules.values():
        student.to(device)
