"""Several processes of `accelerate launch` as one engine.

The first process runs everything as if it were alone; the others wait for its orders, decode their
share of the batches and hand the answers back. Batches are formed as in one process, so answers are
the same. Only the first process reads and writes records.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

_PATIENCE = timedelta(days=7)  # the first process also builds tasks and scores, meanwhile


def processes() -> int:
    """How many were launched together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_helper() -> bool:
    """Whether this is one of the processes that wait for orders."""
    return processes() > 1 and int(os.environ.get("RANK", "0")) > 0


def device() -> Any:
    """The device of this process; joins the group of processes where there is one."""
    import torch
    from accelerate import PartialState

    if processes() == 1:
        return PartialState().device
    return PartialState(cpu=not torch.accelerator.is_available(), timeout=_PATIENCE).device


def rank() -> int:
    """Number of this process, the first one is 0."""
    return int(os.environ.get("RANK", "0")) if processes() > 1 else 0


def order(command: tuple[Any, ...]) -> None:
    """Tell the other processes what to do; nothing happens where there are none, or in them."""
    if processes() > 1 and not is_helper():
        from accelerate.utils import broadcast_object_list

        device()
        broadcast_object_list([command], from_process=0)


def next_order() -> tuple[Any, ...]:
    """Wait for what the first process says."""
    from accelerate.utils import broadcast_object_list

    device()
    command: list[Any] = broadcast_object_list([None], from_process=0)
    found: tuple[Any, ...] = command[0]
    return found


def gather(mine: Any) -> list[Any]:
    """What every process has, by rank."""
    if processes() == 1:
        return [mine]
    from accelerate.utils import gather_object

    found: list[Any] = gather_object([mine])
    return found
