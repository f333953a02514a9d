"""Relative index cost, counted by hand."""

from __future__ import annotations

import pytest

from evalkit.dsa import ReuseSchedule
from evalkit.dsa.index_cost import index_cost
from evalkit.selections.hisa import Hisa
from evalkit.selections.misa import Misa
from evalkit.selections.precision import Precision
from evalkit.selections.temporal import Temporal

FULL, HALF = ReuseSchedule.uniform(8), ReuseSchedule.uniform(8, "1/2", 1)


def cost(policy, schedule=FULL, *, heads=10, tokens=512, ratio=1):
    return index_cost(policy, schedule, heads=heads, tokens=tokens, ratio=ratio)


def test_a_decode_step_by_hand():
    # 64 means and 8 blocks of 8 keys: 128 of 512 products a head
    assert cost(Hisa(block=8, blocks=8)).decode == 128 / 512
    # the last of 65 blocks has one key: 65 means, 7 whole blocks, 1 key
    assert cost(Hisa(block=8, blocks=8), tokens=513).decode == (65 + 56 + 1) / 513
    # 2 of 10 heads with 512 keys, 10 heads with 4 means
    assert cost(Misa(heads=2, block=128)).decode == (2 * 512 + 10 * 4) / 5120
    two_stages = Misa(heads=2, block=128, candidates=64)
    assert cost(two_stages).decode == (2 * 512 + 10 * 4 + 10 * 64) / 5120
    assert cost(Temporal(every=4)).decode == 1 / 4
    assert cost(Hisa(block=8, blocks=8), HALF).decode == 64 / 512


def test_a_prompt_by_hand():
    # blocks of 2, two kept: rows of 1, 2, 3, 4 keys take them all; 5 keys: 3 means, 2 + 1 keys;
    # 6 keys: 3 means, 2 + 2 keys. All in all 1 + 2 + 3 + 4 + 6 + 7 of 1 + 2 + 3 + 4 + 5 + 6.
    small = cost(Hisa(block=2, blocks=2), tokens=6, heads=3)
    assert small.prefill == pytest.approx(23 / 21)
    assert small.decode == pytest.approx(7 / 6)
    # 4 tokens a key: rows 4 to 7 see one key, 8 to 11 two, 12 and 13 three
    third = cost(Hisa(block=1, blocks=2), tokens=13, heads=3, ratio=4)
    assert third.prefill == pytest.approx((4 * 1 + 4 * 2 + 2 * 5) / (4 * 1 + 4 * 2 + 2 * 3))
    assert cost(Temporal(every=4)).prefill == 1


def test_layers_and_bits():
    assert cost(None) == cost(Hisa(block=8, blocks=64)) == cost(Misa(heads=10))
    assert cost(None, HALF).decode == cost(None, HALF).prefill == 0.5
    rounded = cost(Precision(keys="fp8", queries="fp8"), HALF)
    assert (rounded.decode, rounded.weighted, rounded.key_bits) == (0.5, 0.25, 8)
    assert cost(Precision(keys="fp4")).weighted == 0.25
    assert cost(Precision(queries="fp4")).weighted == 1
    blocks = cost(Hisa(block=8, blocks=8, keys="fp8"), HALF)
    assert (blocks.decode, blocks.weighted) == (64 / 512, 32 / 512)
    assert cost(Misa(heads=2, block=128, keys="fp4")).weighted == (2 * 512 + 10 * 4) / 5120 / 4
    assert cost(Temporal(every=4, keys="fp8", queries="fp8")).weighted == 1 / 8
    with pytest.raises(ValueError, match="no index key"):
        cost(None, tokens=3, ratio=4)
