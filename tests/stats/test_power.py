"""Power: published and hand-computed sample sizes, simulated power, the planning table, repeats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as sps

from evalkit.core.errors import EvalkitError
from evalkit.stats import (
    MACRO,
    Spread,
    assumed_spread,
    components,
    paired_difference,
    power_of,
    power_table,
    samples_needed,
    spread_of,
)
from evalkit.stats.closed_form_intervals import null_variance


def test_nothing_differs_by_hand():
    # the score interval of n equal pairs ends at z^2 / (n + z^2)
    z2 = sps.norm.ppf(0.975) ** 2
    for margin in (0.01, 0.02, 0.05):
        n = samples_needed(margin, assumed_spread(0.0))
        assert n == math.ceil(z2 * (1 / margin - 1))
        for count, decides in ((n + 1, True), (n - 1, False)):
            equal = paired_difference([1.0] * count, [1.0] * count, method="score")
            assert (equal.low > -margin) == decides


def test_large_discordance_is_the_textbook_formula():
    # (z_a + z_b)^2 sd^2 / margin^2, to which V0 tends for small margins
    z = sps.norm.ppf(0.975) + sps.norm.ppf(0.8)
    n = samples_needed(0.005, assumed_spread(0.3))
    assert n == pytest.approx(z**2 * 0.3 / 0.005**2, rel=0.01)


def test_null_variance_by_hand():
    assert null_variance(0.1, 0.1, 0.0) == pytest.approx(0.2)
    assert null_variance(0.0, 0.0, -0.05) == pytest.approx(0.05 * 0.95)  # d (1 - d) for losses
    # the root q of 2 q^2 + ((2 - g + l) d - g - l) q - l d (1 - d) = 0
    g, loss, d = 0.08, 0.05, -0.04
    q = (null_variance(g, loss, d) - d * (1 - d)) / 2
    assert 2 * q**2 + ((2 - g + loss) * d - g - loss) * q == pytest.approx(loss * d * (1 - d))


@pytest.mark.parametrize(
    ("discordance", "margin", "delta"), [(0.1, 0.05, 0.0), (0.2, 0.08, 0.01), (0.1, 0.02, -0.08)]
)
def test_planned_power_is_reached(discordance: float, margin: float, delta: float):
    spread = assumed_spread(discordance, delta=delta)
    n = samples_needed(margin, spread, delta=delta)
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        u = rng.random(n)
        d = np.where(u < spread.gain, 1.0, np.where(u > 1 - spread.loss, -1.0, 0.0))
        result = paired_difference((1 + d) / 2, np.full(n, 0.5))
        low, high = 2 * result.low, 2 * result.high
        hits += (low > -margin) if delta > -margin else (high < -margin)
    assert hits / 600 == pytest.approx(0.8, abs=0.06)
    assert power_of(n, margin, spread, delta=delta) == pytest.approx(0.8, abs=0.005)


def test_spread_of_a_pilot():
    a, b = [1, 0, 0.5, 1, 1], [1, 1, 0.25, 1, 0]
    spread = spread_of(a, b)
    assert (spread.gain, spread.loss) == (pytest.approx(1.25 / 5), pytest.approx(1 / 5))
    assert spread.square == pytest.approx((1 + 1 / 16 + 1) / 5)
    assert spread.delta == pytest.approx(np.mean(np.subtract(a, b)))
    assert spread.sd == pytest.approx(np.std(np.subtract(a, b)))
    assert spread.pilot == 5


def test_clusters_of_a_pilot_raise_the_needed_n():
    a, b = np.tile([1.0, 0.0, 1.0, 1.0], 10), np.tile([1.0, 1.0, 0.0, 1.0], 10)
    alone = spread_of(a, b)
    copies = spread_of(np.repeat(a, 4), np.repeat(b, 4), clusters=np.repeat(np.arange(40), 4))
    assert copies.design == pytest.approx(4, rel=0.05)
    ratio = samples_needed(0.05, copies) / samples_needed(0.05, alone)
    assert ratio == pytest.approx(copies.design, rel=0.01)


def test_plan_says_step_and_noise():
    rows = power_table(
        {"longbench_v2": assumed_spread(0.2), "needle": assumed_spread(0.0)},
        {"longbench_v2": 503, "needle": 50},
        margin=0.02,
    )
    assert [row.task for row in rows] == ["longbench_v2", "needle", MACRO]
    first = rows[0]
    assert first.step == pytest.approx(1 / 503)
    assert first.noise == pytest.approx(1.96 * math.sqrt(0.2 / 503), rel=1e-3)
    assert first.needed > 3000
    assert first.power < 0.3
    assert first.sentence() == (
        "503 samples move in steps of 0.2 points; "
        "the sampling noise of a difference is +-3.9 points, 20 steps"
    )
    macro = rows[-1]
    assert macro.planned == 553
    assert macro.noise == pytest.approx(1.96 * math.sqrt(0.2 / 503) / 2, rel=1e-3)


def test_plan_warns_of_small_pilots():
    pilot = spread_of([1, 1, 0, 1], [1, 0, 1, 1])
    rows = power_table({"qa": pilot}, {"qa": 100}, 0.05)
    assert rows[0].caution is not None
    assert "pilot of 4 samples" in rows[0].caution
    same = spread_of([1.0] * 40, [1.0] * 40)
    assert (
        "no sample of the pilot differs" in power_table({"qa": same}, {"qa": 100}, 0.05)[0].caution
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: samples_needed(0.01, assumed_spread(0.1), delta=-0.01),
        lambda: samples_needed(2.0, assumed_spread(0.1)),
        lambda: samples_needed(0.01, assumed_spread(0.1), power=1.0),
        lambda: assumed_spread(1.5),
        lambda: assumed_spread(0.1, delta=0.2),
        lambda: spread_of([1], [0]),
        lambda: power_table({}, {}, 0.01),
        lambda: power_table({"qa": assumed_spread(0.1)}, {}, 0.01),
        lambda: components([[1, 0]], [[1, 0]]),
        lambda: components([[1], [0]], [[1], [0]]),
        lambda: components([[1, 0], [0, 1]], [[1, 0]]),
    ],
)
def test_refusals(call: object):
    with pytest.raises(EvalkitError):
        call()


def test_spread_moves_to_another_difference():
    moved = assumed_spread(0.1).moved(-0.04)
    assert (moved.gain, moved.loss, moved.square) == pytest.approx((0.03, 0.07, 0.1))
    beyond = assumed_spread(0.1).moved(-0.3)
    assert (beyond.gain, beyond.loss, beyond.square) == pytest.approx((0.0, 0.3, 0.3))
    assert Spread(0.0, 0.0, 0.0).moved(-0.5).square == 0.5


def test_variance_components_of_repeats():
    rng = np.random.default_rng(0)
    n, r = 4000, 3
    arm = rng.uniform(0.4, 0.6, (n, 1)) + rng.uniform(-0.3, 0.3, (n, r))
    base = np.full((n, 1), 0.5) + rng.uniform(-0.2, 0.2, (n, r))
    found = components(arm, base)
    assert found.between == pytest.approx(0.2**2 / 12, rel=0.25)
    assert found.within == pytest.approx(0.6**2 / 12 + 0.4**2 / 12, rel=0.05)
    # the interval over sample means holds both components
    result = paired_difference(arm.mean(1), base.mean(1), method="t")
    expected = 1.96 * found.standard_error(n, r)
    assert (result.high - result.low) / 2 == pytest.approx(expected, rel=0.05)
    assert components([[1, 1], [0, 0]], [[1, 1], [0, 0]]).between == 0.0
