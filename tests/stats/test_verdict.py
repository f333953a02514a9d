"""Verdicts, TOST, noise floor; Holm and Benjamini-Hochberg against published examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as sps

from evalkit.core.errors import EvalkitError
from evalkit.stats import (
    PairedResult,
    benjamini_hochberg,
    equivalent,
    holm,
    is_difference,
    judge,
    noise_floor,
    non_inferior,
    paired_difference,
    superior,
    verdict,
)


def result(low: float, high: float, delta: float | None = None) -> PairedResult:
    middle = (low + high) / 2 if delta is None else delta
    return PairedResult(middle, low, high, 0.5, 100, 100, "bca", 0.95)


@pytest.mark.parametrize(
    ("low", "high", "margin", "expected"),
    [
        (-0.005, 0.01, 0.01, "no worse"),
        (-0.009, -0.001, 0.01, "no worse"),  # a sure loss, smaller than the margin
        (-0.01, 0.02, 0.01, "undecided"),  # touches the margin
        (-0.05, 0.05, 0.01, "undecided"),
        (-0.05, -0.01, 0.01, "undecided"),
        (-0.05, -0.011, 0.01, "worse"),
        (0.0, 0.0, 0.0, "no worse"),  # all equal, margin 0
        (0.001, 0.02, 0.0, "no worse"),
        (-0.02, -0.001, 0.0, "worse"),
        (-1.0, 1.0, 1.0, "undecided"),
    ],
)
def test_verdict(low: float, high: float, margin: float, expected: str):
    assert verdict(low, high, margin) == expected


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1))
def test_verdict_is_never_both(one: float, two: float, margin: float):
    low, high = min(one, two), max(one, two)
    decided = verdict(low, high, margin)
    assert non_inferior(low, margin) <= (decided == "no worse")
    assert equivalent(low, high, margin) <= non_inferior(low, margin)


def test_margin_must_be_a_share_of_the_score():
    for margin in (-0.1, 1.5, float("nan")):
        with pytest.raises(EvalkitError, match="margin"):
            verdict(0.0, 0.1, margin)


def test_equivalence_and_superiority():
    assert equivalent(-0.01, 0.01, 0.02)
    assert not equivalent(-0.01, 0.03, 0.02)
    assert superior(0.001)
    assert not superior(0.0)


def test_noise_floor_is_the_far_end_of_the_repeat():
    floor = noise_floor(result(-0.004, 0.012))
    assert floor == 0.012
    assert noise_floor(paired_difference([1, 0, 1], [1, 0, 1])) == 0.0  # deterministic repeats
    assert not is_difference(result(0.001, 0.015, delta=0.01), floor)
    assert is_difference(result(0.001, 0.025, delta=0.013), floor)
    assert not is_difference(result(-0.001, 0.2, delta=0.1), floor)


@pytest.mark.parametrize(
    ("given", "floor", "expected"),
    [
        (result(-0.3, -0.1), 0.25, ("undecided", "delta inside the noise floor of 0.25")),
        (result(-0.3, -0.1), 0.0, ("worse", None)),
        (result(-0.009, -0.001), 0.0, ("no worse", "lower, within margin")),
        (result(-0.03, -0.001), 0.0, ("undecided", "lower, perhaps by less than the margin")),
        (result(0.001, 0.05), 0.0, ("no worse", "higher")),
        (result(-0.001, 0.05), 0.0, ("no worse", None)),
    ],
)
def test_judge(given: PairedResult, floor: float, expected: tuple):
    assert judge(given, 0.01, floor) == expected


def test_holm_by_hand():
    # 4 x 0.005, 3 x 0.01, then the running maximum
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9]).tolist() == [0.9]
    assert holm([]).tolist() == []
    assert holm([0.5, 0.6, 0.9]).tolist() == [1.0, 1.0, 1.0]


def test_benjamini_hochberg_published_example():
    # the 15 p-values of Benjamini and Hochberg (1995), section 2.3: four are rejected at 0.05
    p = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
        0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000,
    ]  # fmt: skip
    assert int((benjamini_hochberg(p) <= 0.05).sum()) == 4
    assert int((holm(p) <= 0.05).sum()) == 3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms())
def test_adjustments_keep_order_and_agree_with_scipy(p: list, rnd: object):
    ours = benjamini_hochberg(p)
    assert ours == pytest.approx(sps.false_discovery_control(p, method="bh"))
    assert (holm(p) >= ours - 1e-12).all()
    assert (ours >= np.array(p) - 1e-12).all()
    order = np.random.default_rng(0).permutation(len(p))
    assert holm(np.array(p)[order]) == pytest.approx(holm(p)[order])


@pytest.mark.parametrize("bad", [[1.2], [-0.1], [float("nan")], [[0.1]]])
def test_adjustments_refuse_what_is_no_p_value(bad: list):
    with pytest.raises(EvalkitError, match="p-values"):
        holm(bad)
