"""Means of blocks of index keys."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad


def block_means(keys: Tensor, block: int) -> Tensor:
    """Means [B, N, d] of the whole blocks of keys [B, T, d]; what is left over has none."""
    batch, length, channels = keys.shape
    count = length // block
    return keys[:, : count * block].reshape(batch, count, block, channels).mean(2)


def running_means(keys: Tensor, block: int) -> Tensor:
    """Per key, the mean of its block up to and with it: [B, T, d] of keys [B, T, d]."""
    batch, length, channels = keys.shape
    shape = batch, -(-length // block), block, channels
    filled = pad(keys, (0, 0, 0, -length % block)).reshape(shape)
    number = filled.new_ones(block).cumsum(0)
    means = filled.cumsum(2) / number[:, None]
    return means.flatten(1, 2)[:, :length]
