"""Gaffke's bound: a one-sided bound on a mean of bounded units that allows unseen losses.

The lower bound of the mean of n units is the quantile of sum_i D_i z_i, where z holds the units and
one more of the worst possible value and D is uniform on the simplex, Dirichlet(1, ..., 1) (Gaffke
2005; Learned-Miller and Thomas 2019, arXiv:1905.06208). It is the Bayesian bootstrap with the worst
unit added. For right/wrong units it is Clopper and Pearson's bound exactly; where nothing varies it
ends at what the exact test of no loss allows, 1 - alpha^(1/n); for large n it tends to the normal
bound. That it holds for every bounded distribution is proven for n <= 2 and a conjecture beyond,
without a counterexample; benchmarks/coverage.py measures it.

The distribution of the sum is computed, not simulated: P(sum_i D_i z_i <= t) = P(Q <= 0) for
Q = sum_i G_i (z_i - t), G_i independent gamma variables, by a contour integral of its moment
generating function through the saddle point (relative error below 0.1 % for p from 1e-6 to 0.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalkit.stats.inputs import Floats

NORMAL = NormalDist()
Complexes = NDArray[np.complex128]
STEPS = np.arange(61) * 0.1  # nodes of the integral, in units of the width at the saddle point
MOST_BEND = 0.6  # of the contour away from the vertical
NEAREST = 0.3  # distance of the contour from the pole at 0, in the same units
SPENT = 1e-9  # where the integrand has decayed to this share, the rest is left out
PRODUCT = 8  # factors multiplied before a logarithm is taken
LEAST_P = 1e-15  # where the normal scale ends
HALVING = 7  # every so many steps of the solver halve the interval
CLOSE = 1e-6  # on the normal scale


@dataclass(frozen=True, slots=True)
class BoundedUnits:
    """Independent units whose mean is the difference, and the worst and best value of one unit.

    Attributes:
        values: [k] distinct values.
        counts: [k] units that have each value (fractions are allowed).
        largest: no unit can lie outside [-largest, largest].
    """

    values: Floats
    counts: Floats
    largest: float

    @property
    def mean(self) -> float:
        """The estimate."""
        return math.fsum(self.values * self.counts) / math.fsum(self.counts)

    def mirrored(self) -> BoundedUnits:
        """The same for the opposite difference."""
        return BoundedUnits(-self.values, self.counts, self.largest)

    def p(self, null: float) -> float:
        """One-sided p-value against a mean of at most `null`."""
        return dirichlet_tail(*self._with_worst(), null)

    def lower(self, alpha: float) -> float:
        """Lower bound of the mean, wrong with probability alpha at most."""
        return dirichlet_quantile(*self._with_worst(), alpha)

    def _with_worst(self) -> tuple[Floats, Floats]:
        return np.append(self.values, -self.largest), np.append(self.counts, 1.0)


def dirichlet_tail(values: ArrayLike, shapes: ArrayLike, point: float) -> float:
    """P(sum_i D_i values_i <= point) for D ~ Dirichlet(shapes).

    Args:
        values: [k].
        shapes: [k] positive; a value that m units share has shape m.
        point: where the distribution function is wanted.
    """
    gaps = np.asarray(values, dtype=np.float64) - point
    weights = np.asarray(shapes, dtype=np.float64)
    scale = float(np.max(np.abs(gaps)))
    if scale == 0.0:
        return 1.0
    there = np.abs(gaps) > 1e-14 * scale
    gaps, weights = gaps[there] / scale, weights[there]
    if gaps.min() > 0.0:
        return 0.0
    if gaps.max() < 0.0:
        return 1.0
    if float(weights @ gaps) < 0.0:
        return 1.0 - _below_zero(-gaps, weights)
    return _below_zero(gaps, weights)


def dirichlet_quantile(values: ArrayLike, shapes: ArrayLike, alpha: float) -> float:
    """The alpha quantile of sum_i D_i values_i, D ~ Dirichlet(shapes)."""
    v, g = np.asarray(values, dtype=np.float64), np.asarray(shapes, dtype=np.float64)
    low, high = float(v.min()), float(v.max())
    if low == high:
        return low
    total = float(g.sum())
    mean = float(g @ v) / total
    spread = math.sqrt(max(0.0, float(g @ (v - mean) ** 2) / total / (total + 1.0)))
    start = max(mean + NORMAL.inv_cdf(alpha) * spread, (low + mean) / 2)
    return solve_p(lambda point: dirichlet_tail(v, g, point), alpha, low, high, start, spread)


def solve_p(
    p: Callable[[float], float], alpha: float, low: float, high: float, start: float, scale: float
) -> float:
    """A point between low and high at which an increasing p-value is alpha, or just below it.

    Secant steps on the normal scale, where p is nearly linear, kept between the points that are
    known to lie on either side; where p jumps over alpha the point is left of the jump.

    Args:
        p: p-value of a point, 0 at low and 1 at high.
        alpha: level.
        low: left end.
        high: right end.
        start: first guess.
        scale: distance over which p changes by about one standard deviation of the normal scale.
    """
    target = NORMAL.inv_cdf(alpha)
    left, right = low, high
    before: tuple[float, float] | None = None
    point = start
    for step in range(100):
        if not left < point < right or step % HALVING == HALVING - 1:
            point = (left + right) / 2
        gap = NORMAL.inv_cdf(min(max(p(point), LEAST_P), 1.0 - LEAST_P)) - target
        left, right = (point, right) if gap <= 0.0 else (left, point)
        if right - left <= CLOSE * (high - low) or -CLOSE < gap <= 0.0:
            break
        slope = 1.0 / scale
        if before is not None and (gap - before[1]) * (point - before[0]) > 0.0:
            slope = (gap - before[1]) / (point - before[0])
        before = (point, gap)
        point -= (gap + CLOSE / 2) / slope  # aims just left of alpha
    return left


def _below_zero(gaps: Floats, shapes: Floats) -> float:
    """P(sum_i G_i gaps_i <= 0), G_i ~ Gamma(shapes_i), for a positive mean.

    -1 / (2 pi i) times the integral of exp(K(s)) / s upwards through the saddle point left of 0,
    K(s) = -sum_i shapes_i log(1 - s gaps_i). All singular points are real, so that the contour
    may bend along the steepest descent: a hyperbola, its curvature from the third derivative.
    """
    pole = 1.0 / float(gaps.min())
    point = _saddle(gaps, shapes, pole)
    ratio = gaps / (1.0 - point * gaps)
    point = max(min(point, -NEAREST / math.sqrt(shapes @ ratio**2)), (point + pole) / 2)
    ratio = gaps / (1.0 - point * gaps)
    width = 1.0 / math.sqrt(shapes @ ratio**2)
    skewness = 2.0 * float(shapes @ ratio**3) * width**3
    bend = min(max(-skewness / 3.0, -MOST_BEND), MOST_BEND)
    total = 0.0
    for steps in (STEPS[:31], STEPS[31:]):
        away = width * (1j * np.sinh(steps) - bend * (np.cosh(steps) - 1.0))
        speed = width * (1j * np.cosh(steps) - bend * np.sinh(steps))
        terms = np.exp(-_log_factors(ratio, shapes, away)) * speed / (point + away)
        total += float(terms.imag.sum()) - (float(terms[0].imag) / 2 if steps[0] == 0.0 else 0.0)
        if abs(terms[-1]) < SPENT * abs(total):
            break
    integral = total * (STEPS[1] - STEPS[0])
    level = -float(shapes @ np.log1p(-point * gaps))
    return float(min(1.0, max(0.0, -math.exp(level) * integral / math.pi)))


def _log_factors(ratio: Floats, shapes: Floats, away: Complexes) -> Complexes:
    """sum_i shapes_i log(1 - away ratio_i) at every node, up to multiples of 2 pi i."""
    single = shapes == 1.0
    total = np.zeros(len(away), dtype=np.complex128)
    factors: Complexes = 1.0 - ratio[single, None] * away
    if len(factors):  # products of a few factors first: logarithms are slow
        products = np.multiply.reduceat(factors, np.arange(0, len(factors), PRODUCT), axis=0)
        total += _log(products).sum(axis=0)
    others: Complexes = 1.0 - ratio[~single, None] * away
    total += shapes[~single] @ _log(others)
    return total


def _log(z: Complexes) -> Complexes:
    """Complex logarithm; five times as fast as NumPy's own."""
    return 0.5 * np.log(z.real**2 + z.imag**2) + 1j * np.arctan2(z.imag, z.real)


def _saddle(gaps: Floats, shapes: Floats, pole: float) -> float:
    """Where K'(s) = sum_i shapes_i gaps_i / (1 - s gaps_i) is 0, between `pole` and 0 (Newton)."""
    low, high = pole, 0.0
    point = max(pole / 2, -float(shapes @ gaps) / float(shapes @ gaps**2))
    for _ in range(200):
        ratio = gaps / (1.0 - point * gaps)
        slope = float(shapes @ ratio)
        low, high = (low, point) if slope > 0.0 else (point, high)
        following: float = point - slope / float(shapes @ ratio**2)
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - point) <= 1e-6 * abs(point):
            return following
        point = following
    return point
