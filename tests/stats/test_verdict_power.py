"""Power of the verdicts that rest on bounds: hand values, simulated power, haystacks, the table."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from evalkit.core.errors import EvalkitError
from evalkit.stats import Spread, assumed_spread, power_of, power_table, samples_needed, spread_of
from evalkit.stats.inputs import split
from evalkit.stats.one_sided import valid_test
from evalkit.stats.verdict_power import (
    Plan,
    growth_needed,
    haystacks_for,
    least_effect,
    least_margin,
    undecidable_below,
    verdict_power,
)


def one(spread: Spread, n: int) -> Plan:
    return Plan({"qa": spread}, {"qa": n})


def test_haystacks_by_hand():
    assert undecidable_below(10) == pytest.approx(1 - 0.025**0.1)
    assert haystacks_for(0.03) == math.ceil(math.log(0.025) / math.log(0.97)) == 122
    assert undecidable_below(haystacks_for(0.03)) <= 0.03 < undecidable_below(121)
    assert haystacks_for(1.0) == 1
    for margin in (0.0, -0.1):
        with pytest.raises(EvalkitError, match="margin"):
            haystacks_for(margin)


def test_equal_answers_need_the_least_number():
    none = assumed_spread(0.0)
    assert (verdict_power(one(none, 369), 0.01), verdict_power(one(none, 370), 0.01)) == (0.0, 1.0)
    assert math.ceil(60 * growth_needed(one(none, 60), 0.01)) == pytest.approx(370, abs=1)
    assert least_margin(one(none, 370)) == pytest.approx(0.01, abs=5e-5)


def test_right_wrong_tasks_follow_the_score_test():
    spread = assumed_spread(0.1)
    n = samples_needed(0.03, spread)
    assert verdict_power(one(spread, n), 0.03) == power_of(n, 0.03, spread)
    assert n * growth_needed(one(spread, n), 0.03) == pytest.approx(n, rel=0.002)
    worse = verdict_power(one(spread, 400), 0.01, delta=-0.08)
    assert worse == power_of(400, 0.01, spread, delta=-0.08)
    four = Plan(dict.fromkeys("abcd", spread), dict.fromkeys("abcd", n // 4))
    assert verdict_power(four, 0.03) == pytest.approx(power_of(n, 0.03, spread), abs=0.01)


def draw_graded(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.2, rng.uniform(-0.6, 0.6, n), 0.0)


def measured(d: np.ndarray, clusters: np.ndarray | None = None) -> Spread:
    """Spread of a large pilot of differences."""
    half = spread_of((1 + d) / 2, np.full(len(d), 0.5), clusters=clusters)
    return replace(half, gain=2 * half.gain, loss=2 * half.loss, square=4 * half.square, pilot=0)


def decided(rows: list[np.ndarray], margin: float, clusters: np.ndarray | None = None) -> float:
    tests = [valid_test(split(d[None], None, clusters), 0) for d in rows]
    return float(np.mean([test.p(-margin) <= 0.025 for test in tests]))


@pytest.mark.parametrize("n", [150, 600])
def test_planned_power_is_reached_on_graded_scores(n: int):
    rng = np.random.default_rng(0)
    plan = one(measured(draw_graded(rng, 50_000)), n)
    margin = least_margin(plan)
    assert verdict_power(plan, margin) == pytest.approx(0.8, abs=0.001)
    share = decided([draw_graded(rng, n) for _ in range(400)], margin)
    assert share == pytest.approx(0.8, abs=0.07)


def test_planned_power_is_reached_with_haystacks():
    rng = np.random.default_rng(1)

    def draw(haystacks: int) -> np.ndarray:
        loss = rng.beta(0.2, 3.8, haystacks).repeat(10)
        gain = rng.beta(0.2, 3.8, haystacks).repeat(10)
        u, v = rng.random((2, 10 * haystacks))
        return (u < gain).astype(float) - (v < loss)

    plan = one(measured(draw(4000), np.arange(40_000) // 10), 600)
    assert plan.haystacks("qa") == 60
    margin = least_margin(plan)
    assert margin > undecidable_below(60)
    share = decided([draw(60) for _ in range(400)], margin, np.arange(600) // 10)
    assert share == pytest.approx(0.8, abs=0.08)


def test_power_grows_with_samples_and_margin_and_falls_with_churn():
    spread = replace(assumed_spread(0.1), square=0.06)
    powers = [verdict_power(one(spread, n), 0.03) for n in (100, 300, 900, 2700)]
    assert powers == sorted(powers)
    powers = [verdict_power(one(spread, 400), m) for m in (0.01, 0.02, 0.04, 0.08)]
    assert powers == sorted(powers)
    spreads = [replace(assumed_spread(c), square=0.6 * c) for c in (0.4, 0.1, 0.02)]
    powers = [verdict_power(one(s, 400), 0.03) for s in spreads]
    assert powers == sorted(powers)
    assert least_effect(one(spread, 900)) < least_effect(one(spread, 300))
    assert least_effect(one(spread, 2)) == 1.0


def test_the_table_says_when_haystacks_make_a_margin_undecidable():
    needle = replace(assumed_spread(0.05), design=3.0, cluster_size=40.0)
    rows = power_table(
        {"needle": needle, "qa": assumed_spread(0.05)},
        {"needle": 400, "qa": 1100},
        0.02,
    )
    assert [row.task for row in rows] == ["needle", "qa", "macro"]
    assert rows[0].caution == (
        "10 haystacks decide no margin below 31 points, however many samples they hold:"
        " 2 needs 183 of them"
    )
    assert rows[0].power == 0.0
    assert rows[0].needed > 183 * 40
    assert rows[1].power > 0.8
    assert rows[1].caution is None
    assert rows[2].power == 0.0  # the average is as undecidable as its weakest task
    assert rows[2].needed > 1500
    assert (rows[1].planned, rows[1].step) == (1100, 1 / 1100)
    assert rows[1].needed == pytest.approx(samples_needed(0.02, assumed_spread(0.05)), rel=0.01)


def test_refusals():
    for spreads, planned in (({}, {}), ({"qa": assumed_spread(0.1)}, {})):
        with pytest.raises(EvalkitError):
            power_table(spreads, planned, 0.01)
    with pytest.raises(EvalkitError, match="power"):
        growth_needed(one(assumed_spread(0.1), 10), 0.01, power=1.0)
    with pytest.raises(EvalkitError, match="margin"):
        verdict_power(one(assumed_spread(0.1), 10), 2.0)
