"""Confidence sequences of a paired mean difference: valid at every look, so one may stop any time.

A gambler starts with 1 and bets on each new sample that the mean of x is above m; if it is not,
his capital is a non-negative supermartingale and reaches 2 / alpha with probability alpha / 2 at
most, ever (Ville 1939). The values m that a bettor in either direction has not refuted form a
confidence sequence (Waudby-Smith and Ramdas 2024, JRSS B 86, "betting"). Drawing without
replacement from a benchmark of N samples, the mean of what is left, (N m - sum so far) /
(N - t + 1), takes the place of m (Waudby-Smith and Ramdas 2020, NeurIPS; 2024, section 5).

The capital is the average of two bettors: the predictable plug-in empirical-Bernstein bets with
truncation 1/2 (2024, hedged capital), quick where many samples differ, and aGRAPA with
truncation 9/10 (2024, appendix B), quick where few do. The average is a supermartingale too.
Differences d in [-1, 1] enter as x = (d + 1) / 2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.inputs import Floats

PLUG_IN_TRUNCATION = 0.5
AGRAPA_TRUNCATION = 0.9
TINY = 1e-12
GRID, GRIDS = 32, 3  # ends are found to 1 / 32^3


def confidence_sequence(
    differences: ArrayLike,
    *,
    size: int | None = None,
    confidence: float = 0.95,
    breaks: int = 1000,
) -> tuple[Floats, Floats]:
    """Lower and upper ends after every sample, intersected with all earlier ones.

    Args:
        differences: [t] paired differences in [-1, 1], in the order drawn.
        size: samples in the whole benchmark, drawn without replacement: the sequence is for the
            mean over the benchmark. None: for the mean of the population the samples come from.
        confidence: chance that the sequence holds the mean at all times.
        breaks: the ends are found on a grid of so many steps and rounded outwards.

    Returns:
        low, high: [t] each. After the last of `size` samples both are the mean itself.

    Raises:
        EvalkitError: differences outside [-1, 1] or more than `size`.
    """
    d = checked(differences, size)
    x = (d + 1.0) / 2.0
    low, high = np.full(len(x), np.inf), np.full(len(x), -np.inf)
    for means in np.array_split(np.linspace(0.0, 1.0, breaks + 1), max(1, breaks // 64)):
        above = first_refuted(x, means, size, confidence)
        below = first_refuted(1.0 - x, 1.0 - means, size, confidence)
        alive = np.arange(len(x)) < np.minimum(above, below)[:, None]
        low = np.minimum(low, np.where(alive, means[:, None], np.inf).min(axis=0))
        high = np.maximum(high, np.where(alive, means[:, None], -np.inf).max(axis=0))
    low, high = _outwards(low, -1.0 / breaks), -_outwards(-high, -1.0 / breaks)
    low, high = 2.0 * np.maximum(low, 0.0) - 1.0, 2.0 * np.minimum(high, 1.0) - 1.0
    if size == len(d):
        low[-1] = high[-1] = math.fsum(d) / len(d)
    return low, high


def sequence_ends(
    differences: ArrayLike, *, size: int | None = None, confidence: float = 0.95
) -> tuple[float, float]:
    """The last ends of `confidence_sequence`, found on ever finer grids: quicker and closer.

    Takes the arguments and raises the errors of `confidence_sequence`.
    """
    d = checked(differences, size)
    if size == len(d):
        mean = math.fsum(d) / size
        return mean, mean
    x = (d + 1.0) / 2.0
    return 2.0 * lower_end(x, size, confidence) - 1.0, 1.0 - 2.0 * lower_end(
        1.0 - x, size, confidence
    )


def lower_end(x: Floats, size: int | None, confidence: float) -> float:
    """Largest grid point below all means of x in [0, 1] that are not refuted from below.

    Args:
        x: [t] samples in [0, 1].
        size: of the population drawn from without replacement, or None.
        confidence: two-sided; the end is wrong with half of the rest.
    """
    low, high = 0.0, 1.0
    for _ in range(GRIDS):
        means = np.linspace(low, high, GRID + 1)
        alive = np.flatnonzero(np.isinf(first_refuted(x, means, size, confidence)))
        first = int(alive[0]) if alive.size else GRID
        if first == 0:
            return low
        low, high = float(means[first - 1]), float(means[first])
    return low


def first_refuted(x: Floats, means: Floats, size: int | None, confidence: float) -> Floats:
    """Position of the sample at which a bet on "the mean is above m" refutes m, inf if none does.

    Args:
        x: [t] samples in [0, 1].
        means: [k] values of m.
        size: of the population drawn from without replacement, or None.
        confidence: each direction refutes at a capital of 2 / (1 - confidence).

    Returns:
        [k] positions, counted from 0.
    """
    crossed = log_capital(x, means, size, confidence) >= math.log(2.0 / (1.0 - confidence))
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1).astype(float), np.inf)


def log_capital(x: Floats, means: Floats, size: int | None, confidence: float) -> Floats:
    """Logarithm of the capital after every sample of a bet that the mean of x is above m.

    Args:
        x: [t] samples in [0, 1].
        means: [k] values of m.
        size: of the population drawn from without replacement, or None.
        confidence: sets the plug-in bets.

    Returns:
        [k, t]; inf where the sum so far already exceeds what m allows.
    """
    before = np.concatenate([[0.0], np.cumsum(x)[:-1]])
    left = None if size is None else size - np.arange(len(x), dtype=float)
    mean, variance = _predictable(x)
    if size is None or left is None:
        mu, center = np.repeat(means[:, None], len(x), axis=1), mean
    else:
        mu, center = (size * means[:, None] - before) / left, (size * mean - before) / left
    odds = np.maximum(mu, TINY)
    t = np.arange(1, len(x) + 1)
    plug_in = np.sqrt(2.0 * math.log(2.0 / (1.0 - confidence)) / (variance * t * np.log1p(t)))
    gap = center - odds
    bets = (
        np.minimum(plug_in, PLUG_IN_TRUNCATION / odds),
        np.clip(gap / (variance + gap**2), 0.0, AGRAPA_TRUNCATION / odds),
    )
    growth = [np.cumsum(np.log1p(bet * (x - odds)), axis=1) for bet in bets]
    capital = np.logaddexp(*growth) - math.log(2.0)
    return np.where(np.minimum.accumulate(mu, axis=1) < -1e-9, np.inf, capital)


def checked(differences: ArrayLike, size: int | None) -> Floats:
    """Differences as an array.

    Raises:
        EvalkitError: none, not in [-1, 1], or more than `size`.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or not len(d):
        raise EvalkitError("differences must be one-dimensional and not empty")
    if not (np.abs(d) <= 1.0).all():
        raise EvalkitError("differences must lie in [-1, 1]")
    if size is not None and len(d) > size:
        raise EvalkitError(f"{len(d)} samples drawn of a benchmark of {size}")
    return d


def _predictable(x: Floats) -> tuple[Floats, Floats]:
    """Running mean and variance before each sample, with one made-up sample (1/2, 1/4)."""
    t = np.arange(1, len(x) + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
    return np.concatenate([[0.5], mean[:-1]]), np.concatenate([[0.25], variance[:-1]])


def _outwards(ends: Floats, step: float) -> Floats:
    """Lower ends moved out by a grid step; where no m is left, the last that was stays."""
    filled = np.where(np.isfinite(ends), ends, -np.inf)
    return np.maximum.accumulate(filled) + step
