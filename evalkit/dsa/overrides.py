"""Override a module's forward, or swap an indexer, and restore both exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def override_forward(module: nn.Module, forward: Callable[..., object]) -> Iterator[None]:
    """Let `forward` run instead of the module's own inside the block; see `override_method`."""
    with override_method(module, "forward", forward):
        yield


@contextmanager
def override_method(module: nn.Module, name: str, method: Callable[..., object]) -> Iterator[None]:
    """Let `method` run instead of the module's own one of this name inside the block.

    Set on the instance, so that class, parameters and hooks stay as they are. What stood on the
    instance before (another library's wrapper) comes back; overrides may be nested.
    """
    previous = vars(module).get(name)
    setattr(module, name, method)
    try:
        yield
    finally:
        if previous is None:
            delattr(module, name)
        else:
            setattr(module, name, previous)


@contextmanager
def swap_indexer(owner: nn.Module, indexer: nn.Module) -> Iterator[None]:
    """Let `indexer` be the owner's ``indexer`` inside the block; the very same object comes back.

    `owner` may have none (a natively shared layer, ``owner.indexer is None``).
    """
    attribute = "indexer" in vars(owner)  # a plain None, not registered among the children
    previous = owner.indexer
    owner.indexer = indexer
    try:
        yield
    finally:
        if attribute:
            del owner.indexer
            object.__setattr__(owner, "indexer", previous)
        else:
            owner.indexer = previous
