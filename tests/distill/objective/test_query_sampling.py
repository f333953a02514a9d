"""Draws of query positions and prompt lengths: reproducible, in range, independent of the batch."""

from __future__ import annotations

import torch

from distill.objective.query_sampling import (
    decode_mask,
    has_two_phases,
    sample_prompt_lengths,
    sample_queries,
)
from evalkit.dsa import ReuseSchedule

VALID = torch.arange(100) < torch.tensor([[100], [60], [12]])


def test_draws_do_not_depend_on_the_company():
    together = sample_queries(VALID, [5, 6, 7], first=10, count=8, seed=1)[0]
    for i, draw in enumerate([5, 6, 7]):
        alone = sample_queries(VALID[i : i + 1], [draw], first=10, count=8, seed=1)[0]
        assert torch.equal(alone.positions[0], together.positions[i])
    other = sample_queries(VALID, [5, 6, 7], first=10, count=8, seed=2)[0]
    assert not torch.equal(other.positions, together.positions)


def test_positions_have_something_to_choose_and_rise():
    group = sample_queries(VALID, [0, 1, 2], first=10, count=8, seed=0)[0]
    real = group.weight > 0
    assert real.sum(1).tolist() == [8, 8, 2]  # the last sequence has positions 10 and 11 only
    for row, keep, end in zip(group.positions, real, (100, 60, 12), strict=True):
        chosen = row[keep]
        assert (chosen >= 10).all()
        assert (chosen < end).all()
        assert (chosen.diff() > 0).all()
    assert (group.positions.diff(dim=1) >= 0).all()


def test_phases_are_told_apart_by_the_prompt():
    draws = [0, 1, 2]
    prompts = sample_prompt_lengths(VALID, draws, first=10, seed=0)
    assert (prompts >= torch.tensor([32, 22, 10])).all()
    assert (prompts <= torch.tensor([91, 55, 12])).all()
    prefill, decode = sample_queries(
        VALID, draws, first=10, count=8, seed=0, prompt_lengths=prompts, decode_share=0.25
    )
    assert (prefill.phase, decode.phase) == ("prefill", "decode")
    assert prefill.positions.shape == (3, 6)
    assert decode.positions.shape == (3, 2)
    mask = decode_mask(prompts, 100)
    for group, expected in ((prefill, False), (decode, True)):
        for i in range(3):
            positions = group.positions[i][group.weight[i] > 0]
            assert (mask[i, positions] == expected).all()


def test_only_a_lag_in_decode_has_two_phases():
    assert not has_two_phases(ReuseSchedule.uniform(8, "1/4"))
    assert has_two_phases(ReuseSchedule.uniform(8, "1/4", 1))
    assert not has_two_phases(ReuseSchedule.uniform(8, "1/4", 1, lag_phase="all"))
