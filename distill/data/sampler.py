"""Seeded draws: the order of the training sequences, and a random stream for every purpose.

A draw depends on (seed, its number, its purpose) alone: not on processes, micro-batches or what ran
before. So a run that was killed and resumed goes on with the draws of one that was not.
"""

from __future__ import annotations

from enum import IntEnum

import torch


class Stream(IntEnum):
    """What a random stream is for; the numbers are part of what a seed means."""

    PROMPT_LENGTH = 1
    PREFILL_QUERIES = 2
    DECODE_QUERIES = 3
    SEQUENCE_ORDER = 4


def seeded_generator(seed: int, draw: int, stream: Stream) -> torch.Generator:
    """A random stream of its own for every draw and purpose."""
    mixed = (seed * 1_000_003 + draw) * 1_000_003 + stream
    return torch.Generator().manual_seed(mixed % (2**63 - 1))


class Sampler:
    """The training sequence of every draw: each epoch is a permutation of its own."""

    def __init__(self, count: int, seed: int) -> None:
        """`count` sequences."""
        self._count, self._seed = count, seed
        self._epoch, self._order = -1, list[int]()

    def __getitem__(self, draw: int) -> int:
        epoch, place = divmod(draw, self._count)
        if epoch != self._epoch:
            generator = seeded_generator(self._seed, epoch, Stream.SEQUENCE_ORDER)
            order: list[int] = torch.randperm(self._count, generator=generator).tolist()
            self._epoch, self._order = epoch, order
        return self._order[place]
