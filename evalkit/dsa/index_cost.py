"""What selecting costs under a schedule and a policy, counted; standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from evalkit.dsa.schedule import ReuseSchedule
from evalkit.dsa.selection import REFERENCE_BITS, SelectionPolicy


@dataclass(frozen=True, slots=True)
class IndexCost:
    """Products of index queries and keys, relative to a scan of all keys by all layers.

    Attributes:
        tokens: length of the prompt.
        prefill: of all its tokens.
        decode: of the steps behind it, on average.
        key_bits: of the keys' channels.
    """

    tokens: int
    prefill: float
    decode: float
    key_bits: int

    @property
    def weighted(self) -> float:
        """`decode`, where a product of keys of half as many bits counts half."""
        return self.decode * self.key_bits / REFERENCE_BITS


def index_cost(
    policy: SelectionPolicy | None,
    schedule: ReuseSchedule,
    *,
    heads: int,
    tokens: int,
    ratio: int = 1,
) -> IndexCost:
    """Cost of selecting for a prompt and for a decode step that sees as many tokens.

    Args:
        policy: of the full layers; None: they score every key.
        schedule: shared layers cost nothing.
        heads: of an indexer.
        tokens: of the prompt.
        ratio: tokens per index key.

    Raises:
        ValueError: the prompt is too short to have a key.
    """
    keys = tokens // ratio
    if keys < 1:
        raise ValueError(f"{tokens} tokens have no index key")
    share = float(schedule.retention)
    if policy is None:
        return IndexCost(tokens, share, share, REFERENCE_BITS)
    # `ratio` rows in a row see the same keys, but for the last ones
    rows = [ratio] * (keys - 1) + [tokens - keys * ratio + 1]
    counted = sum(n * policy.products(k, heads) for k, n in enumerate(rows, start=1))
    scanned = heads * sum(n * k for k, n in enumerate(rows, start=1))
    step = policy.products(keys, heads) / (heads * keys)
    every = 1 if policy.reuse is None else policy.reuse.every
    return IndexCost(tokens, share * counted / scanned, share * step / every, policy.key_bits)
