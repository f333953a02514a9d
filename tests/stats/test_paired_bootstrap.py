"""paired_bootstrap: hand-computed values, agreement with SciPy, degenerate input."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats as sps

from evalkit.core.errors import EvalkitError
from evalkit.stats import paired_bootstrap, paired_bootstrap_arms

METHODS = ["bca", "percentile", "studentized"]


def f1_pair(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Zero-inflated F1 scores of two arms that agree on most samples."""
    rng = np.random.default_rng(seed)
    base = np.where(rng.random(n) < 0.4, 0.0, rng.beta(2.0, 1.0, n))
    arm = np.where(rng.random(n) < 0.6, base, rng.beta(1.0, 1.0, n))
    return arm, base


def test_percentile_of_two_samples_by_hand():
    # differences 1, 0: the resampled mean is 0, 1/2, 1 with probability 1/4, 1/2, 1/4
    result = paired_bootstrap([1.0, 0.5], [0.0, 0.5], method="percentile", confidence=0.8)
    assert (result.delta, result.low, result.high) == (0.5, 0.0, 1.0)
    assert result.p_value == pytest.approx(0.5, abs=0.03)  # 2 P(mean <= 0)
    half = paired_bootstrap([1.0, 0.5], [0.0, 0.5], method="percentile", confidence=0.4)
    assert (half.low, half.high) == (0.5, 0.5)


def test_percentile_equals_the_exact_bootstrap_distribution():
    differences = np.array([0.4, -0.1, 0.3, 0.8, 0.0])
    exact = np.sort([np.mean(draw) for draw in product(differences, repeat=5)])
    base = np.full(5, 0.2)
    result = paired_bootstrap(base + differences, base, method="percentile", n_resamples=50_000)
    for end, level in ((result.low, 0.025), (result.high, 0.975)):
        near = np.quantile(exact, [level - 0.004, level + 0.004])
        assert near[0] - 1e-9 <= end <= near[1] + 1e-9
    assert result.p_value == pytest.approx(2 * np.mean(exact <= 1e-12), abs=0.005)


def test_bca_level_by_hand():
    # z0 and a from the definition, applied to the same replicates
    from evalkit.stats.bootstrap_endpoints import Replicates, interval

    theta = np.round(np.random.default_rng(5).gamma(2.0, size=9999), 9)
    center, a = 1.9, 0.07
    z0 = sps.norm.ppf(np.mean(theta < center))
    levels = [
        sps.norm.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) for z in sps.norm.ppf([0.025, 0.975])
    ]
    low, high = interval(Replicates(theta, center, a), 0.95)
    assert low == pytest.approx(np.quantile(theta, levels[0]), abs=0.01)
    assert high == pytest.approx(np.quantile(theta, levels[1]), abs=0.05)


def test_acceleration_by_hand():
    from evalkit.stats.bootstrap_endpoints import acceleration

    values = np.array([-1.0, -1.0, 2.0])
    assert acceleration([values], [1.0]) == pytest.approx(6.0 / (6.0 * 6.0**1.5))
    # two strata, weights 1/2: the cubes and squares of w l / G add up
    other = np.array([-1.0, 1.0])
    cubes = ((values / 6) ** 3).sum() + ((other / 4) ** 3).sum()
    squares = ((values / 6) ** 2).sum() + ((other / 4) ** 2).sum()
    expected = cubes / (6 * squares**1.5)
    assert acceleration([values, other], [0.5, 0.5]) == pytest.approx(expected)


@pytest.mark.parametrize(("ours", "theirs"), [("percentile", "percentile"), ("bca", "BCa")])
@pytest.mark.parametrize("n", [30, 200])
def test_agrees_with_scipy_within_monte_carlo_error(ours: str, theirs: str, n: int):
    a, b = f1_pair(n, seed=n)
    result = paired_bootstrap(a, b, method=ours)
    reference = [
        sps.bootstrap(
            (a, b),
            lambda x, y, axis: x.mean(axis) - y.mean(axis),
            paired=True,
            method=theirs,
            n_resamples=10_000,
            batch=500,
            rng=np.random.default_rng(seed),
        )
        for seed in range(3)
    ]
    se = np.std(a - b) / math.sqrt(n)
    # a 2.5 % order statistic of 10,000 has a standard error of about 0.026 se; twice, for two runs
    for end, name in ((result.low, "low"), (result.high, "high")):
        other = np.mean([getattr(r.confidence_interval, name) for r in reference])
        assert abs(end - other) < 4 * 0.026 * math.sqrt(1 + 1 / 3) * se
    assert result.delta == pytest.approx(np.mean(a - b))


def test_studentised_agrees_with_the_t_interval_on_normal_data():
    rng = np.random.default_rng(3)
    d = np.clip(rng.normal(0.02, 0.1, 400), -0.5, 0.5)
    result = paired_bootstrap(0.5 + d, np.full(400, 0.5), method="studentized")
    low, high = sps.t.interval(0.95, 399, d.mean(), sps.sem(d))
    assert result.low == pytest.approx(low, abs=5e-4)
    assert result.high == pytest.approx(high, abs=5e-4)


def test_macro_average_weighs_tasks_equally():
    a, b = [1, 1, 1, 1, 0, 1], [0, 1, 1, 1, 0, 0]
    result = paired_bootstrap(a, b, strata=["x"] * 4 + ["y"] * 2)
    assert result.delta == pytest.approx((1 / 4 + 1 / 2) / 2)


def test_stratified_interval_against_a_plain_loop():
    rng = np.random.default_rng(8)
    a, b = f1_pair(130, seed=9)
    strata = np.array(["x"] * 100 + ["y"] * 30)
    d = a - b
    replicates = [
        np.mean([rng.choice(d[strata == s], np.sum(strata == s)).mean() for s in "xy"])
        for _ in range(6000)
    ]
    result = paired_bootstrap(a, b, strata=strata, method="percentile")
    se = np.std(replicates)
    assert result.low == pytest.approx(np.quantile(replicates, 0.025), abs=0.2 * se)
    assert result.high == pytest.approx(np.quantile(replicates, 0.975), abs=0.2 * se)


@pytest.mark.parametrize("method", METHODS)
def test_cluster_interval_against_a_plain_loop(method: str):
    rng = np.random.default_rng(8)
    sizes = rng.integers(1, 12, 40)
    clusters = np.repeat(np.arange(40), sizes)
    d = np.clip(
        np.repeat(rng.normal(0, 0.2, 40), sizes) + rng.normal(0, 0.1, sizes.sum()), -0.5, 0.5
    )
    sums = np.bincount(clusters, d)
    replicates = []
    for _ in range(6000):
        pick = rng.integers(0, 40, 40)
        replicates.append(sums[pick].sum() / sizes[pick].sum())
    result = paired_bootstrap(0.5 + d, 0.0 * d + 0.5, clusters=clusters, method=method)
    assert result.delta == pytest.approx(d.mean())  # the mean over samples
    assert (result.n, result.n_clusters) == (sizes.sum(), 40)
    slack = {"percentile": 0.2, "bca": 0.4, "studentized": 0.6}[method]
    se = np.std(replicates)
    assert result.low == pytest.approx(np.quantile(replicates, 0.025), abs=slack * se)
    assert result.high == pytest.approx(np.quantile(replicates, 0.975), abs=slack * se)


def test_clusters_widen_the_interval():
    a, b = f1_pair(60, seed=2)
    a, b, clusters = np.repeat(a, 5), np.repeat(b, 5), np.repeat(np.arange(60), 5)
    plain, clustered = paired_bootstrap(a, b), paired_bootstrap(a, b, clusters=clusters)
    ratio = (clustered.high - clustered.low) / (plain.high - plain.low)
    assert ratio == pytest.approx(math.sqrt(5), rel=0.1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(6))
def test_p_value_agrees_with_the_interval(method: str, seed: int):
    a, b = f1_pair(40, seed=seed)
    p = paired_bootstrap(a, b, method=method).p_value
    for shift in (-0.02, 0.02):
        confidence = min(max(1.0 - p + shift, 0.01), 0.999)
        result = paired_bootstrap(a, b, method=method, confidence=confidence)
        assert (result.low > 0 or result.high < 0) == (p <= 1 - confidence)


@pytest.mark.parametrize("method", METHODS)
def test_all_equal_differences_give_a_zero_width_interval(method: str):
    same = paired_bootstrap([1, 0, 1, 1], [1, 0, 1, 1], method=method)
    assert (same.delta, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert same.caution is not None
    assert "all differences equal" in same.caution
    up = paired_bootstrap([1, 1, 1, 1], [0.25, 0.25, 0.25, 0.25], method=method)
    assert (up.delta, up.low, up.high, up.p_value) == (0.75, 0.75, 0.75, 0.125)
    near = paired_bootstrap([0.1 + 0.2, 0.4], [0.3, 0.4], method=method)  # equal but for rounding
    assert near.low == near.high == near.delta


@pytest.mark.parametrize("method", METHODS)
def test_one_sample_or_one_cluster_says_nothing_about_spread(method: str):
    one = paired_bootstrap([1.0], [0.0], method=method)
    assert (one.delta, one.low, one.high, one.p_value) == (1.0, -1.0, 1.0, 1.0)
    assert one.caution is not None
    assert one.caution.startswith("n = 1")
    cluster = paired_bootstrap([1, 0, 1], [0, 0, 1], clusters=["h"] * 3, method=method)
    assert (cluster.low, cluster.high, cluster.p_value) == (-1.0, 1.0, 1.0)
    assert cluster.caution is not None
    assert cluster.caution.startswith("one cluster")


def test_a_task_with_one_sample_may_lie_anywhere():
    a, b = f1_pair(60, seed=4)
    alone = paired_bootstrap(a, b, strata=["x"] * 60)
    both = paired_bootstrap([*a, 1.0], [*b, 0.5], strata=["x"] * 60 + ["y"])
    assert both.delta == pytest.approx((alone.delta + 0.5) / 2)
    assert both.low == pytest.approx((alone.low - 1.0) / 2)
    assert both.high == pytest.approx((alone.high + 1.0) / 2)
    assert both.p_value == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_results_are_finite_on_small_binary_data(method: str):
    for n in (2, 3, 5):
        for a in product((0.0, 1.0), repeat=n):
            result = paired_bootstrap(a, [1.0] * n, method=method, n_resamples=200)
            numbers = [result.delta, result.low, result.high, result.p_value]
            assert np.isfinite(numbers).all()
            assert -1.0 <= result.low <= result.delta <= result.high <= 1.0
            assert 0.0 < result.p_value <= 1.0


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 0], [1], "same samples"),
        ([[1, 0]], [[1, 0]], "one per sample"),
        ([], [], "no scores"),
        ([1, math.nan], [1, 0], "nan"),
        ([50, 60], [1, 0], "divide percentages"),
        ([-0.1, 0], [1, 0], "in \\[0, 1\\]"),
    ],
)
def test_refuses_scores_it_cannot_compare(a: list, b: list, message: str):
    with pytest.raises(EvalkitError, match=message):
        paired_bootstrap(a, b)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "BCA"},
        {"confidence": 95},
        {"n_resamples": 0},
        {"strata": ["x"]},
        {"clusters": [[1, 2]]},
    ],
)
def test_refuses_options_out_of_range(options: dict):
    with pytest.raises(EvalkitError):
        paired_bootstrap([1, 0], [0, 1], **options)


def test_refuses_an_unknown_baseline_row():
    with pytest.raises(EvalkitError, match="2 arms"):
        paired_bootstrap_arms([[1, 0], [0, 1]], 2)


def test_clusters_that_span_tasks_are_named():
    a, b = f1_pair(40, seed=1)
    result = paired_bootstrap(a, b, strata=["x", "y"] * 20, clusters=np.arange(40) // 2)
    assert result.caution is not None
    assert "clusters span tasks" in result.caution
