"""Intervals of speeds: a bootstrap over requests for latencies, over blocks of time for rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evalkit.serving.bench.drive import Timing
from evalkit.serving.bench.measure import Floats, Window, token_times

BLOCKS = 20  # stretches of equal length that a window is cut into


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Settings:
    """How intervals are made."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0


def over_requests(
    requests: Sequence[Timing], statistic: Callable[[Sequence[Timing]], float], how: Settings
) -> Estimate:
    """A statistic of requests, requests resampled whole (pieces of one answer stay together)."""
    drawn = _drawn_requests(requests, statistic, how, 0)
    return _estimate(statistic(requests), drawn, how)


def ratio_over_requests(
    arm: Sequence[Timing],
    base: Sequence[Timing],
    statistic: Callable[[Sequence[Timing]], float],
    how: Settings,
) -> Estimate:
    """arm ÷ base of a statistic; the two are resampled independently."""
    above = _drawn_requests(arm, statistic, how, 1)
    below = _drawn_requests(base, statistic, how, 2)
    return _estimate(statistic(arm) / statistic(base), above / below, how)


def rate_over_blocks(rounds: Sequence[tuple[Window, Sequence[Timing]]], how: Settings) -> Estimate:
    """Output tokens per second of one arm, blocks of time resampled."""
    tokens, seconds = blocks(rounds)
    drawn = _drawn_rates(tokens, seconds, how, 3)
    return _estimate(float(tokens.sum() / seconds.sum()), drawn, how)


def ratio_over_blocks(
    arm: Sequence[tuple[Window, Sequence[Timing]]],
    base: Sequence[tuple[Window, Sequence[Timing]]],
    how: Settings,
) -> Estimate:
    """arm ÷ base of output tokens per second, blocks of time resampled independently."""
    above, below = blocks(arm), blocks(base)
    value = float((above[0].sum() / above[1].sum()) / (below[0].sum() / below[1].sum()))
    drawn = _drawn_rates(*above, how, 4) / _drawn_rates(*below, how, 5)
    return _estimate(value, drawn, how)


def blocks(rounds: Sequence[tuple[Window, Sequence[Timing]]]) -> tuple[Floats, Floats]:
    """Tokens and seconds of every block; each window is cut into `BLOCKS` equal ones."""
    tokens, seconds = [], []
    for window, timings in rounds:
        times, weights = token_times(timings)
        edges = np.linspace(window.start, window.end, BLOCKS + 1)
        counts, _ = np.histogram(times, edges, weights=weights)
        tokens.append(counts)
        seconds.append(np.diff(edges))
    return np.concatenate(tokens), np.concatenate(seconds)


def _drawn_requests(
    requests: Sequence[Timing],
    statistic: Callable[[Sequence[Timing]], float],
    how: Settings,
    stream: int,
) -> Floats:
    rng = np.random.default_rng([how.seed, stream])
    count = len(requests)
    picks = rng.integers(0, count, (how.resamples, count))
    return np.array([statistic([requests[i] for i in row]) for row in picks])


def _drawn_rates(tokens: Floats, seconds: Floats, how: Settings, stream: int) -> Floats:
    rng = np.random.default_rng([how.seed, stream])
    picks = rng.integers(0, len(tokens), (how.resamples, len(tokens)))
    drawn: Floats = tokens[picks].sum(axis=1) / seconds[picks].sum(axis=1)
    return drawn


def _estimate(value: float, drawn: Floats, how: Settings) -> Estimate:
    """Percentile interval."""
    tail = 100 * (1 - how.confidence) / 2
    low, high = np.nanpercentile(drawn, [tail, 100 - tail])
    return Estimate(value, float(low), float(high))
