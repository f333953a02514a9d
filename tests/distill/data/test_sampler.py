"""Order of the text: a permutation per epoch, a function of seed and draw alone."""

from __future__ import annotations

import torch

from distill.data.sampler import Sampler, Stream, seeded_generator


def test_every_epoch_is_a_permutation_of_its_own():
    sampler = Sampler(5, seed=3)
    epochs = [[sampler[draw] for draw in range(first, first + 5)] for first in (0, 5, 10)]
    assert all(sorted(epoch) == list(range(5)) for epoch in epochs)
    assert epochs[0] != epochs[1] or epochs[1] != epochs[2]
    assert [sampler[draw] for draw in range(15)] == [n for epoch in epochs for n in epoch]


def test_a_draw_does_not_depend_on_what_was_drawn_before():
    forward, backward = Sampler(7, seed=1), Sampler(7, seed=1)
    there = [forward[draw] for draw in range(20)]
    assert [backward[draw] for draw in reversed(range(20))] == there[::-1]
    assert there != [Sampler(7, seed=2)[draw] for draw in range(20)]


def test_the_order_is_that_of_0_1():
    """Seeds keep their meaning: stream 4 of the epoch."""
    mixed = torch.Generator().manual_seed((9 * 1_000_003 + 2) * 1_000_003 + 4)
    expected = torch.randperm(6, generator=mixed).tolist()
    sampler = Sampler(6, seed=9)
    assert [sampler[draw] for draw in range(12, 18)] == expected


def test_every_purpose_has_a_stream_of_its_own():
    numbers = [torch.rand(1, generator=seeded_generator(0, 0, s)).item() for s in Stream]
    assert len(set(numbers)) == len(Stream) == 4
