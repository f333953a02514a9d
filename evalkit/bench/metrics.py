"""Latency and throughput of a round, over the whole of it and over its steady part.

The whole window runs from the first request sent to the last piece received. The steady window is
chosen by rule: with P the most requests that were in flight at once, it runs from the first to the
last moment at which at least `STEADY_SHARE` × P were. Requests count for latencies where they were
sent and finished inside the window; output tokens count where they arrived inside it, those of one
request spread evenly over the pieces in which they came. Each window has its own denominator.

TTFT: sent to first piece. TPOT: first to last piece, divided by output tokens − 1. ITL: time
between two pieces of one answer; a piece may hold several tokens, so ITL is not TPOT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalkit.bench.load_generator import Timing

STEADY_SHARE = 0.9
FEWEST = 10  # with fewer requests inside, a steady window says nothing
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """A time window of a round.

    Attributes:
        name: ``whole`` or ``steady``.
        start: seconds after the start of the round.
        end: likewise.
        requests: finished inside, without failures.
    """

    name: str
    start: float
    end: float
    requests: tuple[Timing, ...]

    @property
    def seconds(self) -> float:
        """The denominator of its throughput."""
        return self.end - self.start


Part = tuple[Window, Sequence[Timing]]
"""A window, and all requests of its round."""


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Mean and quantiles; nan where nothing was measured."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class WindowMetrics:
    """Throughput and latencies of a window.

    Attributes:
        window: which.
        seconds: its length.
        requests: finished inside.
        output_tokens: that arrived inside.
        tokens_per_second: of the servers together.
        per_card: of one accelerator.
        ttft: seconds.
        tpot: seconds.
        itl: seconds.
    """

    window: str
    seconds: float
    requests: int
    output_tokens: float
    tokens_per_second: float
    per_card: float
    ttft: LatencySummary
    tpot: LatencySummary
    itl: LatencySummary


def windows(timings: Sequence[Timing]) -> tuple[Window, Window | None]:
    """The whole window, and the steady one where it holds enough requests."""
    good = [t for t in timings if t.error is None]
    if not good:
        return Window("whole", 0.0, 0.0, ()), None
    whole = Window("whole", min(t.sent for t in good), max(t.end for t in good), tuple(good))
    span = steady_span(good)
    inside = tuple(t for t in good if span[0] <= t.sent and t.end <= span[1])
    if len(inside) < FEWEST:
        return whole, None
    return whole, Window("steady", span[0], span[1], inside)


def steady_span(timings: Sequence[Timing]) -> tuple[float, float]:
    """First and last moment at which at least `STEADY_SHARE` of the peak was in flight."""
    changes = sorted([(t.sent, 1) for t in timings] + [(t.end, -1) for t in timings])
    peak, level = 0, 0
    for _, change in changes:
        level += change
        peak = max(peak, level)
    least, level = math.ceil(STEADY_SHARE * peak), 0
    start = end = changes[0][0]
    begun = False
    for at, change in changes:
        before, level = level, level + change
        if level >= least and not begun:
            start, begun = at, True
        if before >= least > level:
            end = at
    return start, end


def parts(rounds: Sequence[Sequence[Timing]], name: str) -> list[Part]:
    """The windows of one kind, one per round; none where a round has no steady window."""
    chosen = []
    for timings in rounds:
        whole, steady = windows(timings)
        window = whole if name == "whole" else steady
        if window is None or not whole.requests:
            return []
        chosen.append((window, timings))
    return chosen


def measure(rounds: Sequence[Part], cards: int) -> WindowMetrics:
    """Latencies of the windows' requests, and the tokens of all requests that arrived in them.

    Args:
        rounds: windows of one kind, with all requests of their round; tokens and seconds add up.
        cards: accelerators of the servers together.
    """
    tokens, seconds = 0.0, 0.0
    for window, timings in rounds:
        times, weights = token_times(timings)
        inside = (times >= window.start) & (times <= window.end)
        tokens += float(weights[inside].sum())
        seconds += window.seconds
    requests = [t for window, _ in rounds for t in window.requests]
    rate = tokens / seconds if seconds > 0 else math.nan
    return WindowMetrics(
        window=rounds[0][0].name,
        seconds=seconds,
        requests=len(requests),
        output_tokens=tokens,
        tokens_per_second=rate,
        per_card=rate / cards,
        ttft=spread([ttft(t) for t in requests]),
        tpot=spread([tpot(t) for t in requests if t.output_tokens > 1]),
        itl=spread([gap for t in requests for gap in gaps(t)]),
    )


def ttft(timing: Timing) -> float:
    """Time to the first piece."""
    return timing.arrivals[0] - timing.sent


def tpot(timing: Timing) -> float:
    """Time per output token after the first."""
    return (timing.arrivals[-1] - timing.arrivals[0]) / (timing.output_tokens - 1)


def gaps(timing: Timing) -> list[float]:
    """Times between pieces."""
    return [b - a for a, b in zip(timing.arrivals, timing.arrivals[1:], strict=False)]


def token_times(timings: Sequence[Timing]) -> tuple[Floats, Floats]:
    """When output tokens arrived, and how many each time; one entry per piece."""
    good = [t for t in timings if t.error is None and t.arrivals]
    times = [np.asarray(t.arrivals) for t in good]
    weights = [np.full(len(t.arrivals), t.output_tokens / len(t.arrivals)) for t in good]
    if not good:
        return np.zeros(0), np.zeros(0)
    return np.concatenate(times), np.concatenate(weights)


def spread(values: Sequence[float]) -> LatencySummary:
    """Mean, P50, P90, P99 (linear interpolation)."""
    if not values:
        return LatencySummary(math.nan, math.nan, math.nan, math.nan)
    data = np.asarray(values)
    p50, p90, p99 = (float(q) for q in np.percentile(data, [50, 90, 99]))
    return LatencySummary(float(data.mean()), p50, p90, p99)
