"""Reuse over decode steps beside a plain loop, however the steps are fed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from evalkit.dsa import select
from evalkit.dsa.selection import Reuse
from evalkit.dsa.temporal_memory import TemporalMemory
from tests.selections.reference import random_features

TOPK, LENGTH = 5, 40


def part(features, start, end):
    """What a layer has in a forward over the tokens from `start` to before `end`."""
    return replace(
        features,
        query=features.query[:, start:end],
        weight=features.weight[:, start:end],
        key=features.key[:, : end // features.ratio],
        positions=torch.arange(start, end),
    )


def by_loop(features, first, reuse):
    """Row by row: the selection of the step that chose, behind the keys that came since."""
    rows = []
    for row in range(LENGTH):
        step = row - first
        chose = row - step % reuse.every if step >= 0 else row
        upto = part(features, 0, chose + 1)
        kept = [i for i in select(upto, TOPK)[0, chose].tolist() if i >= 0]
        seen, before = (row + 1) // features.ratio, (chose + 1) // features.ratio
        new = list(range(before, seen)) if reuse.recent else []
        rows.append((new + kept)[:TOPK])
    return rows


@pytest.mark.parametrize("recent", [True, False])
@pytest.mark.parametrize("every", [1, 3, 9])
@pytest.mark.parametrize("ratio", [1, 4])
@pytest.mark.parametrize("cuts", ["one by one", (12, 30), (12, 13, 14, 22), (5, 18), (25,), ()])
def test_steps_are_those_of_a_plain_loop(cuts, ratio, every, recent):
    features, first = random_features(LENGTH, ratio=ratio), 12
    reuse = Reuse(every, recent)
    memory, ran = TemporalMemory(reuse), []
    cuts = tuple(range(first, LENGTH)) if cuts == "one by one" else cuts
    wanted = by_loop(features, first, reuse)
    for start, end in zip((0, *cuts), (*cuts, LENGTH), strict=True):
        here = part(features, start, end)
        decode = torch.arange(start, end)[None] >= first
        chosen, did = memory.select(0, here, TOPK, decode, partial(select, here, TOPK))
        ran.append(did)
        for row in range(start, end):
            ours = [i for i in chosen[0, row - start].tolist() if i >= 0]
            assert ours == wanted[row], (row, start)
    if len(cuts) == LENGTH - first:
        assert ran == [True, *(step % every == 0 for step in range(LENGTH - first))]


def test_sequences_of_a_batch_begin_to_decode_apart_and_layers_remember_apart():
    one, two = random_features(LENGTH), random_features(LENGTH, seed=1)
    both = replace(
        one,
        query=torch.cat([one.query, two.query]),
        key=torch.cat([one.key, two.key]),
        weight=torch.cat([one.weight, two.weight]),
    )
    reuse, memory = Reuse(4), TemporalMemory(Reuse(4))
    first = torch.tensor([[11], [20]])
    wanted = [by_loop(one, 11, reuse), by_loop(two, 20, reuse)]
    for start, end in ((0, 16), (16, 22), (22, 23), (23, LENGTH)):
        here, other = part(both, start, end), part(one, start, end)
        decode = torch.arange(start, end)[None] >= first
        chosen, _ = memory.select(3, here, TOPK, decode, partial(select, here, TOPK))
        memory.select(7, other, TOPK, decode[1:], partial(select, other, TOPK))
        for i in range(2):
            for row in range(start, end):
                assert [k for k in chosen[i, row - start].tolist() if k >= 0] == wanted[i][row]


def test_the_next_prompt_forgets_the_last_one():
    memory = TemporalMemory(Reuse(8))
    for seed in range(2):
        features = random_features(LENGTH, seed=seed)
        wanted = by_loop(features, 30, Reuse(8))
        for start, end in ((0, 30), (30, 31), (31, 32)):
            here = part(features, start, end)
            decode = torch.full((1, end - start), start >= 30)
            chosen, _ = memory.select(0, here, TOPK, decode, partial(select, here, TOPK))
            assert [i for i in chosen[0, -1].tolist() if i >= 0] == wanted[end - 1]
