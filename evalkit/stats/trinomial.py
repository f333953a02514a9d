"""Exact unconditional test and bound of a paired difference of right/wrong scores.

Of n pairs x are gained and y lost; the difference of the shares is tested against d. Outcomes are
ordered by Tango's score statistic (Tango 1998), the p-value is the chance of one as extreme, the
largest over the share q of pairs that differ (the nuisance). As Berger and Boos (1994, JASA
89:1012) do, q is searched in its confidence interval of level 1 - gamma, and gamma is added: the
p-value holds for every n, not only for large ones. Lloyd and Moldovan (2008, Stat. Med. 27:3540)
compare such tests of non-inferiority.

Given the number of pairs that differ, x is binomial, and for each such number the extreme outcomes
are those from some x on: the probability is one sum of at most n + 1 terms, not one over all pairs
(x, y). That the largest p-value over all differences of at most d is found at d itself needs an
order in which a gain more or a loss less never is less extreme; tests/stats checks it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from evalkit.stats.closed_form_intervals import critical_z, tango_end, tango_score
from evalkit.stats.gaffke import solve_p
from evalkit.stats.inputs import Floats, Ints

GAMMA = 1e-6  # level of the interval of the nuisance parameter, added to every p-value
SHARES = 33  # values of the nuisance parameter tried
WINDOW = 8.0  # standard deviations of the number of pairs that differ; beyond is below 1e-14
NEGLIGIBLE = 1e-13  # chance of a number of pairs that differ


@dataclass(frozen=True, slots=True)
class PairedCounts:
    """Right/wrong pairs: how many the arm gains and loses against the baseline.

    Attributes:
        gains: pairs that only the arm has right.
        losses: pairs that only the baseline has right.
        n: pairs.
    """

    gains: int
    losses: int
    n: int

    @property
    def mean(self) -> float:
        """The estimate."""
        return (self.gains - self.losses) / self.n

    def mirrored(self) -> PairedCounts:
        """The same for the opposite difference."""
        return PairedCounts(self.losses, self.gains, self.n)

    def p(self, null: float) -> float:
        """One-sided p-value against a difference of at most `null`; 1 from the estimate on."""
        return trinomial_p(self.gains, self.losses, self.n, null)

    def lower(self, alpha: float) -> float:
        """Lower bound of the difference, wrong with probability alpha at most."""
        return trinomial_lower(self.gains, self.losses, self.n, alpha)


@lru_cache(maxsize=65536)
def trinomial_p(gains: int, losses: int, n: int, null: float) -> float:
    """One-sided exact p-value against a difference of at most `null` (see the module).

    Args:
        gains: pairs that only the arm has right.
        losses: pairs that only the baseline has right.
        n: pairs.
        null: difference tested, in [-1, 1].

    Returns:
        The p-value, 1 where the estimate is not above `null`.
    """
    observed = tango_score(gains, losses, n, null)
    if observed <= 0.0 or null >= 1.0:
        return 1.0
    if null <= -1.0:
        return 0.0
    low, high = clopper_pearson(gains + losses, n, GAMMA)
    low, high = max(low, abs(null)), min(1.0, max(high, abs(null)))
    ends = np.arcsin(np.sqrt([low, high]))
    shares = np.sin(np.linspace(ends[0], ends[1], SHARES)) ** 2
    return min(1.0, float(_chance(shares, observed, n, null).max()) + GAMMA)


@lru_cache(maxsize=65536)
def trinomial_lower(gains: int, losses: int, n: int, alpha: float) -> float:
    """Lower bound of the difference at one-sided level alpha: `trinomial_p` solved for the null."""
    z = critical_z(1.0 - 2.0 * alpha)
    middle = (gains - losses) / n
    start = tango_end(gains, losses, n, z)

    def p(null: float) -> float:
        return trinomial_p(gains, losses, n, null)

    return solve_p(p, alpha, -1.0, middle, start, max(1e-6, (middle - start) / z))


def clopper_pearson(successes: int, n: int, alpha: float) -> tuple[float, float]:
    """Exact two-sided interval of one proportion at level 1 - alpha (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    low = 0.0 if successes == 0 else betaincinv(successes, n - successes + 1, alpha / 2)
    high = 1.0 if successes == n else betaincinv(successes + 1, n - successes, 1 - alpha / 2)
    return float(low), float(high)


def _chance(shares: Floats, observed: float, n: int, null: float) -> Floats:
    """[shares] chance of a statistic of at least `observed`, pairs differing with each share."""
    from scipy.special import betainc, gammaln, xlog1py, xlogy

    spread = [WINDOW * math.sqrt(n * q * (1.0 - q)) + WINDOW for q in (shares[0], shares[-1])]
    first = max(0, math.floor(n * shares[0] - spread[0]))
    last = min(n, math.ceil(n * shares[-1] + spread[1]))
    differing = np.arange(first, last + 1)
    least = _least_gains(differing, observed, n, null)
    gain_share = np.clip((1.0 + null / shares) / 2.0, 0.0, 1.0)
    share, k = shares[:, None], differing.astype(np.float64)
    log_chance = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    log_terms = log_chance + xlogy(k, share) + xlog1py(n - k, -share)
    chance = np.exp(log_terms)
    rows, columns = np.nonzero((chance > NEGLIGIBLE) & (least > 0) & (least <= differing))
    beyond = np.where(least == 0, 1.0, np.zeros_like(chance))
    fewest = least[columns]
    beyond[rows, columns] = betainc(fewest, differing[columns] - fewest + 1.0, gain_share[rows])
    return np.asarray(np.sum(chance * beyond, axis=1), dtype=np.float64)


def _least_gains(differing: Ints, observed: float, n: int, null: float) -> Ints:
    """Fewest gains, for each number of differing pairs, with which the statistic is as extreme.

    By bisection; one more than there are pairs where none is.
    """
    below, enough = np.full_like(differing, -1), differing + 1
    while (searching := enough - below > 1).any():
        middle = (below + enough) // 2
        extreme = score_statistics(middle, differing - middle, n, null) >= observed - 1e-9
        enough = np.where(searching & extreme, middle, enough)
        below = np.where(searching & ~extreme, middle, below)
    return enough


def score_statistics(gains: Ints, losses: Ints, n: int, null: float) -> Floats:
    """`tango_score` of many outcomes at once; impossible ones (negative counts) do not matter."""
    gain, loss = np.maximum(gains, 0) / n, np.maximum(losses, 0) / n
    linear = (2.0 - gain + loss) * null - gain - loss
    root = np.sqrt(np.maximum(0.0, linear**2 + 8.0 * loss * null * (1.0 - null)))
    variance = n * np.maximum(0.0, (root - linear) / 2.0 + null * (1.0 - null))
    gap = (gains - losses).astype(np.float64) - n * null
    infinite = np.where(gap > 0.0, np.inf, -np.inf)
    safe = np.where(variance > 1e-12, variance, 1.0)
    statistics = np.where(variance > 1e-12, gap / np.sqrt(safe), infinite)
    return np.where(np.abs(gap) < 1e-12 * n, 0.0, statistics)
