"""Score, t, Newcombe, Tango and Wilson intervals; McNemar and sign-flip tests."""

from __future__ import annotations

import math
from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as sps

from evalkit.core.errors import EvalkitError
from evalkit.stats import (
    Design,
    IntervalOptions,
    mcnemar,
    newcombe_paired,
    paired_arms,
    paired_difference,
    sign_flip,
    tango,
    wilson,
)
from evalkit.stats.methods import METHODS

CLOSED = ["score", "t"]
scores = st.sampled_from([0.0, 0.0, 0.25, 1 / 3, 0.5, 0.7, 1.0, 1.0])
pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=25)


def table(both: int, arm_only: int, baseline_only: int, neither: int) -> tuple[list, list]:
    counts = (both, arm_only, baseline_only, neither)
    a = np.repeat([1.0, 1.0, 0.0, 0.0], counts)
    return a.tolist(), np.repeat([1.0, 0.0, 1.0, 0.0], counts).tolist()


# Fagerland, Lydersen and Laake (Statistical Analysis of Contingency Tables, 2017, chapter 8):
# airway hyper-responsiveness (Bentur et al. 2009) and complete response (Cavo et al. 2012)
BENTUR, CAVO = (1, 1, 7, 12), (59, 6, 16, 80)


def test_newcombe_published_values():
    assert newcombe_paired(*BENTUR) == pytest.approx((-0.507, -0.026), abs=5e-4)
    assert newcombe_paired(*CAVO) == pytest.approx((-0.1186, -0.0046), abs=5e-5)


def test_tango_published_values():
    assert tango(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)
    assert tango(6, 16, 161) == pytest.approx((-0.1240, -0.0054), abs=5e-5)


def test_tango_without_discordant_pairs_by_hand():
    # n d = z sqrt(n d (1 - d)) gives d = z^2 / (n + z^2)
    z2 = sps.norm.ppf(0.975) ** 2
    assert tango(0, 0, 50) == pytest.approx((-z2 / (50 + z2), z2 / (50 + z2)))


def test_wilson_by_hand():
    z2 = sps.norm.ppf(0.975) ** 2
    assert wilson(0, 20) == pytest.approx((0.0, z2 / (20 + z2)))
    low, high = wilson(15, 20)
    reference = sps.binomtest(15, 20).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((reference.low, reference.high))


def test_mcnemar_published_values():
    assert mcnemar(6, 16) == pytest.approx(0.052479, abs=1e-6)
    assert mcnemar(6, 16, mid_p=True) == pytest.approx(0.034690, abs=1e-6)
    assert mcnemar(1, 7) == pytest.approx(sps.binomtest(1, 8).pvalue)
    assert (mcnemar(0, 0), mcnemar(0, 0, mid_p=True), mcnemar(4, 4)) == (1.0, 1.0, 1.0)
    assert mcnemar(2, 2, mid_p=True) == pytest.approx(1 - 0.5 * 6 / 16)
    assert mcnemar(1000, 1100) == pytest.approx(sps.binomtest(1000, 2100).pvalue)


def test_score_interval_of_right_wrong_scores_is_tango():
    result = paired_difference(*table(*CAVO), method="score")
    assert (result.low, result.high) == pytest.approx(tango(6, 16, 161))
    z = (6 - 16) / math.sqrt(22)
    assert result.p_value == pytest.approx(2 * sps.norm.cdf(z))  # McNemar, no correction
    assert (result.method, result.n_clusters) == ("score", 161)


def test_score_interval_scales_with_the_scores():
    a, b = np.array(table(*CAVO))
    whole = paired_difference(a, b, method="score")
    third = paired_difference(a / 3, b / 3, method="score")
    assert third.low == pytest.approx(whole.low / 3)
    assert third.high == pytest.approx(whole.high / 3)
    assert third.p_value == pytest.approx(whole.p_value)


def test_score_interval_of_graded_scores_by_hand():
    # d = 1/2, 1/4, -1/4, 0 x 7: s = sum d^2 / sum |d| = 3/8, x = 2, y = 2/3
    d = np.array([0.5, 0.25, -0.25] + [0.0] * 7)
    result = paired_difference(0.5 + d, np.full(10, 0.5), method="score")
    from evalkit.stats.closed_form_intervals import tango_end

    z = sps.norm.ppf(0.975)
    assert result.low == pytest.approx(0.375 * tango_end(2, 2 / 3, 10, z))
    assert result.high == pytest.approx(-0.375 * tango_end(2 / 3, 2, 10, z))


@pytest.mark.parametrize("method", CLOSED)
def test_large_samples_agree_with_the_normal_approximation(method: str):
    rng = np.random.default_rng(0)
    d = rng.uniform(-0.5, 0.5, 3000) * (rng.random(3000) < 0.6)
    result = paired_difference(0.5 + d, np.full(3000, 0.5), method=method)
    low, high = sps.norm.interval(0.95, d.mean(), sps.sem(d))
    assert (result.low, result.high) == pytest.approx((low, high), abs=2e-4)


def test_t_interval_is_students():
    d = np.random.default_rng(1).uniform(-0.3, 0.5, 12)
    result = paired_difference(0.5 + d, np.full(12, 0.5), method="t")
    test = sps.ttest_1samp(d, 0.0)
    low, high = test.confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((low, high))
    assert result.p_value == pytest.approx(test.pvalue)


def test_t_interval_of_equal_clusters_is_students_over_cluster_means():
    d = np.random.default_rng(1).uniform(-0.3, 0.5, (5, 8))
    clusters = np.repeat(np.arange(5), 8)
    result = paired_difference(0.5 + d.ravel(), np.full(40, 0.5), clusters=clusters, method="t")
    low, high = sps.t.interval(0.95, 4, d.mean(), sps.sem(d.mean(1)))
    assert (result.low, result.high) == pytest.approx((low, high))


def test_macro_t_interval_uses_satterthwaites_degrees_of_freedom():
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-0.5, 0.5, 7), rng.uniform(-0.1, 0.1, 30)
    strata = ["x"] * 7 + ["y"] * 30
    d = np.concatenate([x, y])
    result = paired_difference(0.5 + d, np.full(37, 0.5), strata=strata, method="t")
    # the mean of two means has the interval of half Welch's difference, one sign turned
    low, high = sps.ttest_ind(x, -y, equal_var=False).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((low / 2, high / 2))


def test_clusters_of_copies_count_once():
    a, b = np.array(table(8, 2, 5, 5))
    alone = paired_difference(a, b, method="score")
    copies = paired_difference(
        np.repeat(a, 6), np.repeat(b, 6), clusters=np.repeat(np.arange(20), 6), method="score"
    )
    ratio = (copies.high - copies.low) / (alone.high - alone.low)
    assert 1.0 < ratio < 1.15  # Student's critical value and Bessel's factor


def test_clusters_never_narrow_the_score_interval():
    d = np.tile([0.5, -0.5, 0.0, 0.25], 10)  # every cluster has the same mean
    plain = paired_difference(0.5 + d, np.full(40, 0.5), method="score")
    clustered = paired_difference(
        0.5 + d, np.full(40, 0.5), clusters=np.arange(40) // 4, method="score"
    )
    assert (clustered.low, clustered.high) == (plain.low, plain.high)
    assert clustered.p_value == plain.p_value


CLASSIC = [m for m in METHODS if m not in ("auto", "exact", "gaffke")]


@pytest.mark.parametrize("method", CLASSIC)
def test_degenerate_input_has_defined_answers(method: str):
    one = paired_difference([1.0], [0.0], method=method)
    if method != "newcombe":
        assert (one.low, one.high, one.p_value) == (-1.0, 1.0, 1.0)
        cluster = paired_difference([1, 0, 1], [0, 0, 1], clusters=["h"] * 3, method=method)
        assert (cluster.low, cluster.high, cluster.p_value) == (-1.0, 1.0, 1.0)
    same = paired_difference([1, 0, 1, 1], [1, 0, 1, 1], method=method)
    assert same.delta == 0.0
    assert same.p_value == 1.0
    assert same.low == -same.high
    errors = paired_difference([0.0] * 30, [1.0] * 30, method=method)
    assert errors.delta == -1.0
    assert errors.low == -1.0
    assert errors.p_value < 1e-3


@pytest.mark.parametrize("method", CLOSED)
def test_results_are_finite_on_small_binary_data(method: str):
    for n in (2, 3, 5):
        for a in product((0.0, 1.0), repeat=n):
            for clusters in (None, [0, *range(n - 1)]):
                result = paired_difference(a, [1.0] * n, clusters=clusters, method=method)
                numbers = [result.delta, result.low, result.high, result.p_value]
                assert np.isfinite(numbers).all()
                assert -1.0 <= result.low <= result.high <= 1.0
                assert 0.0 < result.p_value <= 1.0


@given(pairs, st.sampled_from(CLOSED), st.booleans())
@settings(max_examples=80, deadline=None)
def test_swapping_arms_mirrors_closed_forms(rows: list, method: str, clustered: bool):
    a, b = np.array(rows).T
    clusters = np.arange(len(a)) // 2 if clustered else None
    one = paired_difference(a, b, clusters=clusters, method=method)
    two = paired_difference(b, a, clusters=clusters, method=method)
    assert (one.low, one.high, one.p_value) == pytest.approx((-two.high, -two.low, two.p_value))


@given(pairs, st.sampled_from(["score", "t", "newcombe"]))
@settings(max_examples=80, deadline=None)
def test_closed_form_p_values_agree_with_intervals(rows: list, method: str):
    a, b = np.array(rows).T
    if method == "newcombe":
        a, b = np.round(a), np.round(b)
    p = paired_difference(a, b, method=method).p_value
    for shift in (-0.01, 0.01):
        if 0.0 < 1.0 - p + shift < 1.0:
            result = paired_difference(a, b, method=method, confidence=1.0 - p + shift)
            if result.low == result.high:
                continue  # nothing varies: the p-value is the exact sign-flip one
            assert (result.low > 1e-9 or result.high < -1e-9) == (shift < 0 and p < 1.0)


@pytest.mark.parametrize("method", METHODS)
def test_other_arms_change_no_result(method: str):
    rng = np.random.default_rng(2)
    matrix = (rng.random((5, 90)) < 0.8).astype(float)
    strata = np.arange(90) % 3
    choices = Design(strata), IntervalOptions(method, n_resamples=500)
    together = paired_arms(matrix, 0, *choices)
    for arm in range(1, 5):
        alone = paired_arms(matrix[[0, arm]], 0, *choices)
        assert alone.overall[1] == together.overall[arm]
        assert alone.strata["2"][1] == together.strata["2"][arm]


def test_newcombe_macro_squares_and_adds():
    (a1, b1), (a2, b2) = table(20, 3, 5, 2), table(30, 1, 8, 1)
    strata = ["x"] * 30 + ["y"] * 40
    result = paired_difference(a1 + a2, b1 + b2, strata=strata, method="newcombe")
    ends = [newcombe_paired(20, 3, 5, 2), newcombe_paired(30, 1, 8, 1)]
    middles = [-2 / 30, -7 / 40]
    down = math.hypot(*(m - low for m, (low, _) in zip(middles, ends, strict=True)))
    assert result.low == pytest.approx(sum(middles) / 2 - down / 2)


def test_newcombe_takes_right_wrong_scores_without_clusters():
    with pytest.raises(EvalkitError, match="0 and 1"):
        paired_difference([0.5, 1], [1, 0], method="newcombe")
    with pytest.raises(EvalkitError, match="no clusters"):
        paired_difference([1, 1], [1, 0], clusters=["h", "h"], method="newcombe")


def test_sign_flip_of_right_wrong_scores_is_mcnemar():
    assert sign_flip(*table(5, 1, 7, 4)) == pytest.approx(mcnemar(1, 7))
    drawn = sign_flip(*table(5, 12, 25, 4), n_resamples=20_000)
    assert drawn == pytest.approx(mcnemar(12, 25), abs=0.006)


def test_sign_flip_enumerates_small_samples_and_flips_clusters():
    d = np.array([0.5, 0.25, 0.125])
    # |+-4 +-2 +-1| >= 7 in 2 of 8 patterns
    assert sign_flip(0.5 + d / 2, np.full(3, 0.5)) == 0.25
    clusters = ["g", "g", "h"]
    assert sign_flip(0.5 + d / 2, np.full(3, 0.5), clusters=clusters) == 0.5
    assert sign_flip([0.5, 1], [0.5, 1]) == 1.0


def test_sign_flip_agrees_with_scipy():
    rng = np.random.default_rng(0)
    d = rng.normal(0.05, 0.2, 60).clip(-0.5, 0.5)
    reference = sps.permutation_test(
        (d,), np.mean, permutation_type="samples", n_resamples=20_000, rng=rng
    )
    ours = sign_flip(0.5 + d / 2, 0.5 - d / 2, n_resamples=20_000)
    assert ours == pytest.approx(reference.pvalue, abs=0.01)
    assert sign_flip(0.5 + d / 2, 0.5 - d / 2, seed=1) == sign_flip(
        0.5 + d / 2, 0.5 - d / 2, seed=1
    )


def test_auto_takes_the_bound_of_the_verdict_where_it_is_no_wider_than_it_must_be():
    a, b = table(*CAVO)
    half = [s / 2 for s in a]
    tasks = ["x"] * (len(a) // 3) + ["y"] * (len(a) - len(a) // 3)
    clusters = [f"h{k // 3}" for k in range(len(a))]
    for method, found in (
        ("exact", paired_difference(a, b)),
        ("score", paired_difference(half, b)),
        ("gaffke", paired_difference(a, b, clusters=clusters)),
        ("score", paired_difference(a, b, strata=tasks)),
    ):
        assert found.method == method
    assert astuple(paired_difference(a, b)) == astuple(paired_difference(a, b, method="exact"))


@pytest.mark.parametrize(
    "call", [lambda: wilson(3, 2), lambda: tango(3, 3, 5), lambda: mcnemar(-1, 2)]
)
def test_counts_that_do_not_fit_are_refused(call: object):
    with pytest.raises(EvalkitError):
        call()


def test_unknown_methods_are_refused():
    with pytest.raises(EvalkitError, match="unknown interval method wald; known: auto, score"):
        paired_difference([1, 0], [0, 0], method="wald")
