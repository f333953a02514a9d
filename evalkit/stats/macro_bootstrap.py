"""Bootstrap results of one stratum, or of the unweighted mean over several (macro average)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalkit.stats.bootstrap_endpoints import Replicates, acceleration, interval, p_below, two_sided
from evalkit.stats.design import IntervalOptions
from evalkit.stats.inputs import Floats, Stratum
from evalkit.stats.resample import DECIMALS, resample, stream
from evalkit.stats.result import PairedResult, caution, differing


@dataclass(frozen=True, slots=True)
class Draw:
    """Replicates of one stratum: means and variances [resamples, arms], influence [arms, G]."""

    means: Floats | None
    variances: Floats | None
    influence: Floats


@dataclass(frozen=True, slots=True)
class Pooled:
    """Strata and their unweighted mean.

    Attributes:
        parts: the strata.
        influences: [arms, G] of every stratum.
        theta: [arms, resamples] replicates of the mean over strata.
        variance: [arms, resamples] their estimated variances (studentised method only).
    """

    parts: Sequence[Stratum]
    influences: list[Floats]
    theta: Floats
    variance: Floats


def draw(part: Stratum, options: IntervalOptions) -> Draw:
    """Resample one stratum; nothing is drawn where no difference varies."""
    influence = part.units.influence()
    if not influence.any():
        return Draw(None, None, influence)
    drawn = resample(
        part.units,
        options.n_resamples,
        stream(options.seed, part.label),
        variances=options.method == "studentized",
    )
    still = ~influence.any(axis=1)  # as exact as where no arm varies
    drawn.means[:, still] = part.units.delta[still]
    return Draw(drawn.means, drawn.variances, influence)


def results(
    parts: Sequence[Stratum], draws: Sequence[Draw], options: IntervalOptions
) -> tuple[PairedResult, ...]:
    """One result per arm for the unweighted mean over the given strata."""
    weight = 1.0 / len(parts)
    arms = len(parts[0].units.delta)
    theta = np.zeros((options.n_resamples, arms))
    variance = np.zeros_like(theta)
    for part, draw in zip(parts, draws, strict=True):
        theta += weight * (part.units.delta if draw.means is None else draw.means)
        if draw.variances is not None:
            variance += weight**2 * draw.variances
    pooled = Pooled(
        parts,
        [draw.influence for draw in draws],
        np.ascontiguousarray(np.round(theta, DECIMALS).T),
        np.ascontiguousarray(variance.T),
    )
    return tuple(_result(arm, pooled, options) for arm in range(arms))


def _result(arm: int, pooled: Pooled, options: IntervalOptions) -> PairedResult:
    parts = pooled.parts
    delta = math.fsum(part.units.delta[arm] for part in parts) / len(parts)
    units = sum(part.units.count for part in parts)
    # strata with one unit may lie anywhere on the score scale: move the ends, not the replicates
    lone = [float(part.units.delta[arm]) for part in parts if part.units.count == 1]
    down = math.fsum(1.0 + d for d in lone) / len(parts)
    up = math.fsum(1.0 - d for d in lone) / len(parts)
    varies = [bool(values[arm].any()) for values in pooled.influences]
    if any(varies):
        replicates = _replicates(arm, pooled, options.method)
        low, high = interval(replicates, options.confidence)
        tails = p_below(replicates, down), p_below(replicates.mirrored(), up)
        p_value = two_sided(*tails, options.n_resamples)
    else:
        low = high = delta
        p_value = _p_without_spread(delta - down, delta + up, units, options.n_resamples)
    return PairedResult(
        delta=delta,
        low=-1.0 if len(lone) == len(parts) else max(-1.0, low - down),
        high=1.0 if len(lone) == len(parts) else min(1.0, high + up),
        p_value=p_value,
        n=sum(part.units.n for part in parts),
        n_clusters=units,
        method=options.method,
        confidence=options.confidence,
        caution=caution(parts, varies, bootstrap=True),
        n_differing=differing(arm, parts),
    )


def _replicates(arm: int, pooled: Pooled, method: str) -> Replicates:
    weight = 1.0 / len(pooled.parts)
    theta = pooled.theta[arm]
    center = round(weight * math.fsum(p.units.delta[arm] for p in pooled.parts), DECIMALS)
    if method == "percentile":
        return Replicates(theta, center, bias_corrected=False)
    if method == "bca":
        influences = [values[arm] for values in pooled.influences]
        return Replicates(theta, center, acceleration(influences, [weight] * len(influences)))
    spread = [p.units.variance(arm) for p in pooled.parts if p.units.count > 1]
    se = max(1e-12, weight * math.sqrt(math.fsum(spread)))
    gap = theta - center
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(gap == 0.0, 0.0, gap / np.sqrt(pooled.variance[arm]))
    return Replicates(theta, center, t=t, se=se)


def _p_without_spread(low: float, high: float, units: int, n_resamples: int) -> float:
    """p-value where no difference varies: the exact sign-flip one, 2 / 2^units, unless 0 is in."""
    if low <= 0.0 <= high:
        return 1.0
    return max(2.0 ** (1 - units), 1.0 / (n_resamples + 1))
