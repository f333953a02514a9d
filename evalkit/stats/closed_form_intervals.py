"""Intervals without resampling: Wilson, Newcombe and Tango for proportions, paired t for scores."""

from __future__ import annotations

import math
from statistics import NormalDist

from evalkit.core.errors import EvalkitError

NORMAL = NormalDist()


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of one proportion (Wilson 1927).

    Raises:
        EvalkitError: n < 1, or successes outside 0..n.
    """
    if n < 1 or not 0 <= successes <= n:
        raise EvalkitError(f"{successes} successes of {n}")
    z = critical_z(confidence)
    p = successes / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


def newcombe_paired(
    both: int, arm_only: int, baseline_only: int, neither: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Interval of a difference of paired proportions, arm minus baseline.

    Newcombe (1998, Statistics in Medicine 17:2635), method 10: the two Wilson intervals are
    squared and added with the correlation phi, corrected for continuity. Never degenerate:
    with no discordant pair it still has a width.

    Args:
        both: samples that both answer correctly.
        arm_only: samples that only the arm answers correctly.
        baseline_only: samples that only the baseline answers correctly.
        neither: samples that neither answers correctly.
        confidence: nominal coverage.

    Raises:
        EvalkitError: no samples, or a negative count.
    """
    n = _total(both, arm_only, baseline_only, neither)
    arm, base = both + arm_only, both + baseline_only
    low_a, high_a = wilson(arm, n, confidence)
    low_b, high_b = wilson(base, n, confidence)
    phi = _phi(both, arm_only, baseline_only, neither)
    delta = (arm_only - baseline_only) / n
    down_a, up_a = arm / n - low_a, high_a - arm / n
    down_b, up_b = base / n - low_b, high_b - base / n
    low = delta - math.sqrt(max(0.0, down_a**2 - 2 * phi * down_a * up_b + up_b**2))
    high = delta + math.sqrt(max(0.0, up_a**2 - 2 * phi * up_a * down_b + down_b**2))
    return max(-1.0, low), min(1.0, high)


def tango(
    arm_only: int, baseline_only: int, n: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Score interval of a difference of paired proportions (Tango 1998, Statistics in Medicine 17).

    All differences d with |x - y - n d| <= z sqrt(n (2 q + d (1 - d))), x and y the discordant
    counts and q the maximum-likelihood share of baseline-only pairs given d. The test behind it
    at d = 0 is McNemar's without continuity correction.

    Raises:
        EvalkitError: no samples, or discordant counts that do not fit n.
    """
    _total(n - arm_only - baseline_only, arm_only, baseline_only, 0)
    z = critical_z(confidence)
    low = tango_end(arm_only, baseline_only, n, z)
    high = -tango_end(baseline_only, arm_only, n, z)
    return low, high


def tango_p(arm_only: int, baseline_only: int, n: int, null: float = 0.0) -> float:
    """Two-sided p-value of `tango` against a difference of `null`."""
    score = tango_score(arm_only, baseline_only, n, null)
    return 2.0 * NORMAL.cdf(-abs(score))


def critical_z(confidence: float) -> float:
    """Normal quantile of a two-sided interval."""
    if not 0.0 < confidence < 1.0:
        raise EvalkitError(f"confidence {confidence} must lie between 0 and 1")
    return NORMAL.inv_cdf(0.5 + confidence / 2)


def tango_end(x: float, y: float, n: float, z: float) -> float:
    """Lower end: the smallest d whose score does not exceed z, by bisection.

    Counts need not be whole (`evalkit.stats.score_interval` matches them to graded scores).
    """
    inside, outside = (x - y) / n, -1.0
    if tango_score(x, y, n, outside) <= z:
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        if tango_score(x, y, n, middle) > z:
            outside = middle
        else:
            inside = middle
    return inside


def tango_score(x: float, y: float, n: float, d: float) -> float:
    """(x - y - n d) / its standard error under a difference d; 0/0 counts as 0."""
    variance = n * null_variance(x / n, y / n, d)
    gap = x - y - n * d
    if abs(gap) < 1e-12 * n:
        return 0.0
    return gap / math.sqrt(variance) if variance > 1e-12 else math.copysign(math.inf, gap)


def null_variance(gain: float, loss: float, d: float) -> float:
    """Variance 2 q + d (1 - d) of one -1/0/1 difference whose mean is held at d (Tango 1998).

    q is the maximum-likelihood share of losses given d, the root of
    2 q^2 + ((2 - gain + loss) d - gain - loss) q - loss d (1 - d) = 0.

    Args:
        gain: share of differences of 1.
        loss: share of differences of -1.
        d: the mean held, in [-1, 1].
    """
    linear = (2.0 - gain + loss) * d - gain - loss
    root = math.sqrt(max(0.0, linear**2 + 8.0 * loss * d * (1.0 - d)))
    return max(0.0, (root - linear) / 2.0 + d * (1.0 - d))


def _phi(both: int, arm_only: int, baseline_only: int, neither: int) -> float:
    """Correlation of a 2 x 2 table, moved towards zero for continuity when positive."""
    margins = (both + arm_only) * (baseline_only + neither)
    margins *= (both + baseline_only) * (arm_only + neither)
    if margins == 0:
        return 0.0
    product = float(both * neither - arm_only * baseline_only)
    half = (both + arm_only + baseline_only + neither) / 2
    if product > 0:
        product = max(0.0, product - half)
    return product / math.sqrt(margins)


def _total(both: int, arm_only: int, baseline_only: int, neither: int) -> int:
    counts = (both, arm_only, baseline_only, neither)
    if min(counts) < 0 or sum(counts) < 1:
        raise EvalkitError(f"counts of pairs {counts}: none may be negative, not all zero")
    return sum(counts)
