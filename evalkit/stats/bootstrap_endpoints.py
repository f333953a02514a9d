"""Endpoints and p-values from bootstrap replicates: percentile, BCa, studentised.

Every function handles the lower end. The upper end of theta is minus the lower end of -theta, so
swapping two arms mirrors the interval exactly.

Levels and order statistics follow Davison and Hinkley (1997), sections 5.2 and 5.3: the lower end
at level alpha is the k-th smallest of B replicates, k = floor((B + 1) alpha). The one-sided
p-value is the level at which the lower end reaches zero, (1 + #{theta* <= 0}) / (B + 1) for the
percentile method, so an interval excludes zero exactly when p <= 1 - confidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from evalkit.stats.inputs import Floats

NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Replicates:
    """What an interval needs to know about one arm.

    Attributes:
        theta: [resamples] replicates, rounded to the grid on which `center` lies too.
        center: the estimate.
        acceleration: BCa's constant a; 0 gives the bias-corrected interval.
        t: [resamples] (theta* - center) / se*, for the studentised method, else None.
        se: standard error of the estimate, for the studentised method.
        bias_corrected: False for the percentile method.
    """

    theta: Floats
    center: float
    acceleration: float = 0.0
    t: Floats | None = None
    se: float = 0.0
    bias_corrected: bool = True

    def mirrored(self) -> Replicates:
        """The same for -theta."""
        t = None if self.t is None else -self.t
        return Replicates(
            -self.theta, -self.center, -self.acceleration, t, self.se, self.bias_corrected
        )


def interval(replicates: Replicates, confidence: float) -> tuple[float, float]:
    """Two-sided interval, (1 - confidence) / 2 beyond each end."""
    alpha = (1.0 - confidence) / 2.0
    return lower(replicates, alpha), -lower(replicates.mirrored(), alpha)


def lower(replicates: Replicates, alpha: float) -> float:
    """Lower confidence limit at one-sided level alpha."""
    if replicates.t is not None:
        quantile = -_order_statistic(-replicates.t, alpha)
        return replicates.center - quantile * replicates.se
    level = alpha
    if replicates.bias_corrected:
        level = _bca_level(alpha, _bias(replicates), replicates.acceleration)
    return _order_statistic(replicates.theta, level)


def p_below(replicates: Replicates, null: float = 0.0) -> float:
    """One-sided p-value against theta <= null: the smallest alpha whose lower limit exceeds it."""
    n_resamples = len(replicates.theta)
    if replicates.t is not None:
        observed = (replicates.center - null) / replicates.se
        return float(1 + np.count_nonzero(replicates.t >= observed - 1e-12)) / (n_resamples + 1)
    share = float(1 + np.count_nonzero(replicates.theta <= null + 1e-12)) / (n_resamples + 1)
    if not replicates.bias_corrected:
        return share
    return _bca_inverse(share, _bias(replicates), replicates.acceleration)


def two_sided(low_tail: float, high_tail: float, n_resamples: int) -> float:
    """Twice the smaller tail, at most 1 and never below 1 / (B + 1)."""
    return min(1.0, max(2.0 * min(low_tail, high_tail), 1.0 / (n_resamples + 1)))


def acceleration(influences: list[Floats], weights: list[float]) -> float:
    """Acceleration constant a of several strata, from the influence values of one arm.

    a = 1/6 sum_k w_k^3 G_k^-3 sum_j l_kj^3 / (sum_k w_k^2 G_k^-2 sum_j l_kj^2)^(3/2)
    (Davison and Hinkley 1997, section 5.3; with one stratum this is equation 14.15 of Efron and
    Tibshirani 1993).
    """
    cubes, squares = [], []
    for values, weight in zip(influences, weights, strict=True):
        scaled = values * (weight / len(values))
        cubes.append(math.fsum(scaled**3))
        squares.append(math.fsum(scaled**2))
    spread = math.fsum(squares)
    return math.fsum(cubes) / (6.0 * spread**1.5) if spread > 0.0 else 0.0


def _order_statistic(values: Floats, level: float) -> float:
    """The k-th smallest value, k = floor((B + 1) level), kept within 1..B."""
    k = min(len(values), max(1, math.floor((len(values) + 1) * level + 1e-9)))
    return float(np.partition(values, k - 1)[k - 1])


def _bias(replicates: Replicates) -> float:
    """Bias constant z0 = Phi^-1(share of replicates below the estimate, ties counted half)."""
    below = np.count_nonzero(replicates.theta < replicates.center)
    equal = np.count_nonzero(replicates.theta == replicates.center)
    n_resamples = len(replicates.theta)
    share = (below + 0.5 * equal) / n_resamples
    return NORMAL.inv_cdf(min(max(share, 0.5 / n_resamples), 1.0 - 0.5 / n_resamples))


def _bca_level(alpha: float, z0: float, a: float) -> float:
    """Phi(z0 + (z0 + z) / (1 - a (z0 + z))), z the alpha quantile.

    Efron (1987); Efron and Tibshirani (1993), equation 14.10.
    """
    shifted = z0 + NORMAL.inv_cdf(alpha)
    scale = 1.0 - a * shifted
    if scale <= 0.0:  # beyond the pole: only the extreme replicate is left
        return 0.0 if shifted < 0.0 else 1.0
    return NORMAL.cdf(z0 + shifted / scale)


def _bca_inverse(share: float, z0: float, a: float) -> float:
    """The alpha whose `_bca_level` is `share`."""
    if share >= 1.0:
        return 1.0
    gap = NORMAL.inv_cdf(share) - z0
    scale = 1.0 + a * gap
    if scale <= 0.0:
        return 0.0 if gap < 0.0 else 1.0
    return NORMAL.cdf(gap / scale - z0)
