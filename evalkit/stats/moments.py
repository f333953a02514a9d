"""Moments of paired differences over strata and clusters: what score and t intervals need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evalkit.stats.inputs import Stratum

LEAST_DESIGN_EFFECT = 0.25  # tasks that differ can halve the width at most


@dataclass(frozen=True, slots=True)
class Moments:
    """One arm, over the strata that have a spread (two units or more).

    Attributes:
        theta: the part of the estimate that these strata make.
        variance: of theta, cluster-robust, with Bessel's correction.
        df: Satterthwaite's degrees of freedom of that variance.
        scale: s, the step of the three-valued variable with the same moments.
        x: matched number of gains, sum of gains / s.
        y: matched number of losses, sum of losses / s.
        n: samples.
        design: design effect of the strata alone.
        cluster_design: design effect of strata and clusters, or None without clusters.
    """

    theta: float
    variance: float
    df: float
    scale: float
    x: float
    y: float
    n: int
    design: float
    cluster_design: float | None

    def mirrored(self) -> Moments:
        """The same for the opposite difference."""
        return replace(self, theta=-self.theta, x=self.y, y=self.x)


def moments(arm: int, parts: Sequence[Stratum]) -> Moments | None:
    """Moments of one arm; strata weigh 1/len(parts) each. None where no stratum has two units."""
    units = [part.units for part in parts if part.units.count > 1]
    if not units:
        return None
    weight = 1.0 / len(parts)
    n = sum(u.n for u in units)
    stretch = [n * weight / u.n for u in units]  # differences times this have plain mean theta
    gains = math.fsum(f * float(u.gains[arm]) for f, u in zip(stretch, units, strict=True))
    losses = math.fsum(f * float(u.losses[arm]) for f, u in zip(stretch, units, strict=True))
    squares = math.fsum(f**2 * float(u.squares[arm]) for f, u in zip(stretch, units, strict=True))
    theta = math.fsum(weight * float(u.delta[arm]) for u in units)
    scale = squares / (gains + losses) if squares > 1e-18 else 1.0
    pooled = (squares / n - theta**2) / n
    robust, freedoms = [], []
    for u in units:
        factor, degrees = u.few_clusters()
        robust.append(weight**2 * u.variance(arm) * factor * (u.count - 1) / u.count)
        freedoms.append(degrees)
    plain = [weight**2 * max(0.0, u.squares[arm] / u.n - u.delta[arm] ** 2) / u.n for u in units]
    # Tango's variance divides by n, so Bessel's factor is left out where nothing is clustered
    mixed = [r if u.clustered else p for r, p, u in zip(robust, plain, units, strict=True)]
    variance = math.fsum(robust)
    freedom = math.fsum(v**2 / degrees for v, degrees in zip(robust, freedoms, strict=True))
    clustered = any(u.clustered for u in units)
    return Moments(
        theta=theta,
        variance=variance,
        df=variance**2 / freedom if freedom > 0.0 else math.fsum(freedoms),
        scale=scale,
        x=gains / scale,
        y=losses / scale,
        n=n,
        design=_design(math.fsum(plain), pooled),
        cluster_design=_design(math.fsum(mixed), pooled) if clustered else None,
    )


def _design(variance: float, pooled: float) -> float:
    """Variance over the variance of a simple random sample, 1 where nothing varies."""
    return max(LEAST_DESIGN_EFFECT, variance / pooled) if pooled > 1e-15 else 1.0
