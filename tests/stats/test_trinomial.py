"""The exact test of paired right/wrong scores: enumeration, exact error rates, properties."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as sps
from scipy.special import gammaln, xlogy

from evalkit.stats.closed_form_intervals import tango, tango_score
from evalkit.stats.trinomial import (
    GAMMA,
    PairedCounts,
    clopper_pearson,
    score_statistics,
    trinomial_lower,
    trinomial_p,
)

ALPHA = 0.025


def outcomes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """All (gains, losses) of n pairs."""
    gains, losses = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    possible = gains + losses <= n
    return gains[possible], losses[possible]


def chances(gains: np.ndarray, losses: np.ndarray, n: int, gain: float, loss: float) -> np.ndarray:
    rest = n - gains - losses
    log = gammaln(n + 1) - gammaln(gains + 1) - gammaln(losses + 1) - gammaln(rest + 1)
    return np.exp(
        log + xlogy(gains, gain) + xlogy(losses, loss) + xlogy(rest, max(0.0, 1 - gain - loss))
    )


def p_by_enumeration(x: int, y: int, n: int, null: float) -> float:
    """The largest chance, over a fine grid of the share that differs, of a statistic as large."""
    gains, losses = outcomes(n)
    scores = np.array([tango_score(a, b, n, null) for a, b in zip(gains, losses, strict=True)])
    extreme = scores >= tango_score(x, y, n, null) - 1e-9
    low, high = clopper_pearson(x + y, n, GAMMA)
    shares = np.linspace(max(low, abs(null)), max(high, abs(null)), 400)
    sums = [
        chances(gains, losses, n, (q + null) / 2, max(0.0, (q - null) / 2))[extreme].sum()
        for q in shares
    ]
    return min(1.0, max(sums) + GAMMA)


@pytest.mark.parametrize(
    ("x", "y", "n", "null"),
    [
        (0, 0, 40, -0.1),
        (2, 1, 20, -0.3),
        (3, 2, 30, -0.15),
        (5, 6, 40, -0.2),
        (8, 1, 25, 0.02),
        (4, 0, 30, 0.05),
        (9, 3, 12, 0.1),
        (20, 0, 20, 0.7),
        (0, 14, 60, -0.4),
        (1, 9, 45, -0.35),
        (0, 22, 90, -0.4),
    ],
)
def test_p_value_against_enumeration(x: int, y: int, n: int, null: float):
    assert trinomial_p(x, y, n, null) == pytest.approx(p_by_enumeration(x, y, n, null), rel=5e-3)


def test_no_pair_differs_by_hand():
    # n pairs without a loss have chance (1 - m)^n at most; outcomes with a few more gains than
    # losses are as extreme, and may add a tenth
    for n, margin in ((60, 0.05), (400, 0.01), (2000, 0.002)):
        alone = (1 - margin) ** n
        assert alone < trinomial_p(0, 0, n, -margin) < 1.1 * alone


def test_statistics_agree_with_the_scalar_one():
    gains, losses = outcomes(12)
    for null in (-0.9, -0.3, -0.01, 0.0, 0.2, 0.7):
        expected = [tango_score(a, b, 12, null) for a, b in zip(gains, losses, strict=True)]
        assert score_statistics(gains, losses, 12, null) == pytest.approx(expected)


@pytest.mark.parametrize("null", [-0.8, -0.3, -0.1, -0.01, 0.0, 0.01, 0.15, 0.6])
def test_a_gain_more_or_a_loss_less_is_never_less_extreme(null: float):
    # with this order the largest chance over all differences up to the null is found at the null
    for n in (5, 12, 25):
        table = np.full((n + 2, n + 2), np.nan)
        gains, losses = outcomes(n)
        table[gains, losses] = score_statistics(gains, losses, n, null)
        assert not (table[1:, :] < table[:-1, :] - 1e-9).any()
        assert not (table[:, 1:] > table[:, :-1] + 1e-9).any()


def test_without_gains_it_is_never_below_the_binomial_tail():
    # the null without gains is one of those that the largest chance is taken over
    for n, losses, margin in ((160, 37, 0.3029), (90, 22, 0.4), (400, 1, 0.01), (60, 0, 0.05)):
        assert trinomial_p(0, losses, n, -margin) >= sps.binom.cdf(losses, n, margin)
        assert trinomial_p(n - losses, 0, n, 1 - margin) >= sps.binom.cdf(losses, n, margin) * 0.999


def false_shares(n: int, margin: float) -> tuple[float, float, float]:
    """Largest exact chance of false no worse, false worse, and Tango's false worse, over churn."""
    gains, losses = outcomes(n)
    no_worse, worse, tangos = [], [], []
    for x, y in zip(gains.tolist(), losses.tolist(), strict=True):
        no_worse.append(trinomial_p(x, y, n, -margin) <= ALPHA)
        worse.append(trinomial_p(y, x, n, margin) <= ALPHA)
        tangos.append(tango_score(y, x, n, margin) > 1.959964)
    largest = np.zeros(3)
    for churn in np.linspace(0.0, (1 - margin) / 2, 40) ** 2:
        chance = chances(gains, losses, n, churn, churn + margin)
        shares = [chance[np.array(said)].sum() for said in (no_worse, worse, tangos)]
        largest = np.maximum(largest, shares)
    return tuple(largest)


@pytest.mark.parametrize(
    ("n", "margin"), [(15, 0.05), (30, 0.02), (40, 0.1), (60, 0.03), (50, 0.3)]
)
def test_false_verdicts_stay_below_the_level_at_the_margin(n: int, margin: float):
    no_worse, worse, _ = false_shares(n, margin)
    assert no_worse <= ALPHA
    assert worse <= ALPHA


def test_the_score_test_alone_breaks_it():
    no_worse, worse, tangos = false_shares(60, 0.1)
    assert tangos > 0.036
    assert max(no_worse, worse) <= ALPHA


def test_bound_inverts_the_test_and_mirrors():
    for x, y, n in ((0, 0, 1), (0, 0, 60), (2, 3, 50), (5, 15, 200), (50, 60, 2000), (0, 40, 60)):
        low = trinomial_lower(x, y, n, ALPHA)
        assert trinomial_p(x, y, n, low) <= ALPHA + 1e-6
        assert trinomial_p(x, y, n, low + 2e-4) > ALPHA
        counts = PairedCounts(x, y, n)
        assert counts.lower(ALPHA) == low
        assert counts.mirrored().mirrored() == counts
        assert counts.mirrored().mean == -counts.mean


def test_bound_falls_with_losses_and_rises_with_gains():
    lows = [trinomial_lower(3, y, 80, ALPHA) for y in range(12)]
    assert lows == sorted(lows, reverse=True)
    lows = [trinomial_lower(x, 3, 80, ALPHA) for x in range(12)]
    assert lows == sorted(lows)


def test_width_stays_within_5_percent_of_the_score_interval():
    rng = np.random.default_rng(0)
    for n in (20, 50, 200, 2000):
        for share in (0.0, 0.02, 0.1, 0.3):
            widths = []
            for _ in range(12):
                x, y, _rest = rng.multinomial(n, [share / 2, share / 2, 1 - share]).tolist()
                low, high = tango(x, y, n)
                exact = -trinomial_lower(x, y, n, ALPHA) - trinomial_lower(y, x, n, ALPHA)
                widths.append(exact / (high - low))
            assert np.mean(widths) < 1.05


def test_clopper_pearson_agrees_with_scipy():
    for successes, n in ((0, 10), (3, 10), (10, 10), (17, 400)):
        exact = sps.binomtest(successes, n).proportion_ci(0.95, method="exact")
        assert clopper_pearson(successes, n, 0.05) == pytest.approx((exact.low, exact.high))
