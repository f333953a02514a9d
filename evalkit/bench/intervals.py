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
class SpeedInterval:
    """A value with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class IntervalSettings:
    """Confidence level and bootstrap of the intervals."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RatioUnits:
    """Units that are resampled: Σ numerator ÷ Σ denominator is the statistic.

    Attributes:
        numerator: [units].
        denominator: [units].
    """

    numerator: Floats
    denominator: Floats

    @property
    def value(self) -> float:
        """The statistic; nan where nothing was measured."""
        denominator = float(self.denominator.sum())
        return float(self.numerator.sum()) / denominator if denominator > 0 else float("nan")


def estimate(units: RatioUnits, settings: IntervalSettings) -> SpeedInterval:
    """The statistic with its interval."""
    return _interval(units.value, _resampled(units, settings, 0), settings)


def ratio(arm: RatioUnits, base: RatioUnits, settings: IntervalSettings) -> SpeedInterval:
    """arm ÷ base with its interval."""
    resampled = _resampled(arm, settings, 1) / _resampled(base, settings, 2)
    return _interval(arm.value / base.value, resampled, settings)


def rate(parts: Sequence[Part]) -> RatioUnits:
    """Output tokens per second: blocks of time, every window cut into `BLOCKS` equal ones."""
    tokens, seconds = [np.zeros(0)], [np.zeros(0)]
    for window, timings in parts:
        times, weights = token_times(timings)
        edges = np.linspace(window.start, window.end, BLOCKS + 1)
        counts, _ = np.histogram(times, edges, weights=weights)
        tokens.append(counts.astype(np.float64))
        seconds.append(np.diff(edges))
    return RatioUnits(np.concatenate(tokens), np.concatenate(seconds))


def latency(name: str, parts: Sequence[Part]) -> RatioUnits:
    """Mean TTFT, TPOT or ITL: requests.

    Args:
        name: ``ttft``, ``tpot`` or ``itl``.
        parts: windows of one kind.
    """
    pairs = [_UNITS[name](timing) for window, _ in parts for timing in window.requests]
    data = np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)
    return RatioUnits(data[:, 0], data[:, 1])


def _one_tpot(timing: Timing) -> tuple[float, float]:
    return (tpot(timing), 1.0) if timing.output_tokens > 1 else (0.0, 0.0)


def _all_gaps(timing: Timing) -> tuple[float, float]:
    times = gaps(timing)
    return sum(times), float(len(times))


_UNITS: dict[str, Callable[[Timing], tuple[float, float]]] = {
    "ttft": lambda timing: (ttft(timing), 1.0),
    "tpot": _one_tpot,
    "itl": _all_gaps,
}


def _resampled(units: RatioUnits, settings: IntervalSettings, stream: int) -> Floats:
    """[resamples] the statistic of units drawn with replacement."""
    count = len(units.numerator)
    if count == 0:
        return np.full(settings.resamples, np.nan)
    rng = np.random.default_rng([settings.seed, stream])
    values = []
    left = settings.resamples
    while left:
        rows = min(left, max(1, _CHUNK // count))
        picks = rng.integers(0, count, (rows, count))
        denominators = units.denominator[picks].sum(axis=1)
        denominators[denominators <= 0] = np.nan
        values.append(units.numerator[picks].sum(axis=1) / denominators)
        left -= rows
    return np.concatenate(values)


def _interval(value: float, resampled: Floats, settings: IntervalSettings) -> SpeedInterval:
    usable = resampled[np.isfinite(resampled)]
    if len(usable) == 0:
        return SpeedInterval(value, float("nan"), float("nan"))
    tail = 100 * (1 - settings.confidence) / 2
    low, high = np.percentile(usable, [tail, 100 - tail])
    return SpeedInterval(value, float(low), float(high))
