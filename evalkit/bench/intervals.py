"""Intervals of speeds: a bootstrap over requests for latencies, over blocks of time for rates.

Both resample whole units (a request with all its pieces, a stretch of time with all its tokens) and
divide a sum by a sum, so that a mean over pieces or a rate keeps its own denominator. Two arms are
resampled independently. Percentile intervals, seeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evalkit.bench.load_generator import Timing
from evalkit.bench.metrics import Floats, Part, gaps, token_times, tpot, ttft

BLOCKS = 20  # stretches of equal length that a window is cut into
_CHUNK = 2**22  # drawn units in memory at once


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class How:
    """How intervals are made."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Sums:
    """Units that are resampled: Σ above ÷ Σ below is the statistic.

    Attributes:
        above: [units].
        below: [units].
    """

    above: Floats
    below: Floats

    @property
    def value(self) -> float:
        """The statistic; nan where nothing was measured."""
        below = float(self.below.sum())
        return float(self.above.sum()) / below if below > 0 else float("nan")


def estimate(sums: Sums, how: How) -> Estimate:
    """The statistic with its interval."""
    return _interval(sums.value, _drawn(sums, how, 0), how)


def ratio(arm: Sums, base: Sums, how: How) -> Estimate:
    """arm ÷ base with its interval."""
    return _interval(arm.value / base.value, _drawn(arm, how, 1) / _drawn(base, how, 2), how)


def rate(parts: Sequence[Part]) -> Sums:
    """Output tokens per second: blocks of time, every window cut into `BLOCKS` equal ones."""
    tokens, seconds = [np.zeros(0)], [np.zeros(0)]
    for window, timings in parts:
        times, weights = token_times(timings)
        edges = np.linspace(window.start, window.end, BLOCKS + 1)
        counts, _ = np.histogram(times, edges, weights=weights)
        tokens.append(counts.astype(np.float64))
        seconds.append(np.diff(edges))
    return Sums(np.concatenate(tokens), np.concatenate(seconds))


def latency(name: str, parts: Sequence[Part]) -> Sums:
    """Mean TTFT, TPOT or ITL: requests.

    Args:
        name: ``ttft``, ``tpot`` or ``itl``.
        parts: windows of one kind.
    """
    pairs = [_OF[name](timing) for window, _ in parts for timing in window.requests]
    data = np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)
    return Sums(data[:, 0], data[:, 1])


def _one_tpot(timing: Timing) -> tuple[float, float]:
    return (tpot(timing), 1.0) if timing.output_tokens > 1 else (0.0, 0.0)


def _all_gaps(timing: Timing) -> tuple[float, float]:
    found = gaps(timing)
    return sum(found), float(len(found))


_OF: dict[str, Callable[[Timing], tuple[float, float]]] = {
    "ttft": lambda timing: (ttft(timing), 1.0),
    "tpot": _one_tpot,
    "itl": _all_gaps,
}


def _drawn(sums: Sums, how: How, stream: int) -> Floats:
    """[resamples] the statistic of units drawn with replacement."""
    count = len(sums.above)
    if count == 0:
        return np.full(how.resamples, np.nan)
    rng = np.random.default_rng([how.seed, stream])
    found = []
    left = how.resamples
    while left:
        rows = min(left, max(1, _CHUNK // count))
        picks = rng.integers(0, count, (rows, count))
        below = sums.below[picks].sum(axis=1)
        below[below <= 0] = np.nan
        found.append(sums.above[picks].sum(axis=1) / below)
        left -= rows
    return np.concatenate(found)


def _interval(value: float, drawn: Floats, how: How) -> Estimate:
    usable = drawn[np.isfinite(drawn)]
    if len(usable) == 0:
        return Estimate(value, float("nan"), float("nan"))
    tail = 100 * (1 - how.confidence) / 2
    low, high = np.percentile(usable, [tail, 100 - tail])
    return Estimate(value, float(low), float(high))
