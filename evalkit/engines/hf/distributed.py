"""Several processes of `accelerate launch` as one engine.

The first process runs everything as if it were alone; the others wait for its commands, decode
their share of the batches and hand the answers back. Batches are formed as in one process, so
answers are the same. Only the first process reads and writes records.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_PATIENCE = timedelta(days=7)  # the first process also builds tasks and scores, meanwhile


def processes() -> int:
    """How many were launched together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_helper() -> bool:
    """Whether this is one of the processes that wait for commands."""
    return processes() > 1 and int(os.environ.get("RANK", "0")) > 0


def device() -> torch.device:
    """The device of this process; joins the group of processes where there is one."""
    import torch
    from accelerate import PartialState

    alone = processes() == 1
    state = (
        PartialState()
        if alone
        else PartialState(cpu=not torch.accelerator.is_available(), timeout=_PATIENCE)
    )
    chosen: torch.device = state.device
    return chosen


def rank() -> int:
    """Number of this process, the first one is 0."""
    return int(os.environ.get("RANK", "0")) if processes() > 1 else 0


def send_command(command: object) -> None:
    """Tell the other processes what to do; nothing happens where there are none, or in them."""
    if processes() > 1 and not is_helper():
        from accelerate.utils import broadcast_object_list

        device()
        broadcast_object_list([command], from_process=0)


def next_command() -> object:
    """Wait for a command of the first process."""
    from accelerate.utils import broadcast_object_list

    device()
    command: object = broadcast_object_list([None], from_process=0)[0]
    return command


def gather(value: T) -> list[T]:
    """The values of all processes, by rank."""
    if processes() == 1:
        return [value]
    from accelerate.utils import gather_object

    values: list[T] = gather_object([value])
    return values
