"""A cache that grows in place: a decode step copies no key that is stored already."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from transformers.cache_utils import DynamicIndexedLayer, DynamicLayer

from evalkit.dsa.transformers_model import new_cache

if TYPE_CHECKING:
    from torch import nn
    from transformers import DynamicCache

    from evalkit.dsa.call import IndexerCache

ROOM = 256
"""Tokens that a new place has room for beyond those it is made for."""


class _GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Latents and rotated keys, or keys and values: [B, H, T, d]."""

    keys: Tensor
    values: Tensor

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = appended(self.keys, key_states)
        self.values = appended(self.values, value_states)
        return self.keys, self.values


class _GrowingIndexedLayer(_GrowingLayer, DynamicIndexedLayer):  # type: ignore[misc]
    """The same with index keys [B, T, d]."""

    indexer_keys: Tensor

    def update_indexer(self, indexer_key_states: Tensor) -> Tensor:
        if not self.is_indexer_initialized:
            self.lazy_initialization_indexer(indexer_key_states)
        self.indexer_keys = appended(self.indexer_keys, indexer_key_states)
        return self.indexer_keys


_GROWING = {DynamicLayer: _GrowingLayer, DynamicIndexedLayer: _GrowingIndexedLayer}


def growing_cache(model: nn.Module) -> IndexerCache:
    """An empty cache for forwards without gradients.

    Layers that keep every token grow in place; others (windows, compressors, recurrent states)
    are the library's.
    """
    cache = cast("DynamicCache", new_cache(model))
    cache.layers = [_GROWING.get(type(layer), lambda same=layer: same)() for layer in cache.layers]
    return cast("IndexerCache", cache)


def appended(kept: Tensor, new: Tensor) -> Tensor:
    """`kept` [..., T, d] and `new` [..., t, d] behind it, in the memory of `kept` if it has room.

    How much there is, its strides say. Of tensors that were made here, or copied or selected from
    such, nobody else has what lies behind their last token.

    Args:
        kept: empty, [0], before the first tokens.
        new: at least three dimensions.
    """
    before = 0 if kept.dim() == 1 else kept.shape[-2]
    shape = (*new.shape[:-2], before + new.shape[-2], new.shape[-1])
    if before and kept.stride(-3) >= shape[-2] * kept.stride(-2):
        grown = kept.as_strided(shape, kept.stride())
    else:
        grown = torch.empty(
            (*shape[:-2], shape[-2] + ROOM, shape[-1]), dtype=new.dtype, device=new.device
        )[..., : shape[-2], :]
        if before:
            grown[..., :before, :] = kept
    grown[..., before:, :] = new
    return grown
