"""Throughput and latency of arms from their rounds, ratios to the baseline, baseline drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from evalkit.bench.intervals import IntervalSettings, SpeedInterval, estimate, latency, rate, ratio
from evalkit.bench.load_generator import Timing, TimingRow
from evalkit.bench.metrics import WindowMetrics, measure, parts
from evalkit.bench.server_metrics import accept_length_of
from evalkit.config.bench import BenchConfig
from evalkit.dsa.json_types import JsonObject, JsonValue

WINDOWS = ("steady", "whole")
LATENCIES = ("ttft", "tpot", "itl")


class RoundRow(TypedDict):
    """A `Round` in rounds.jsonl."""

    sample_id: str
    arm: str
    number: int
    counted: dict[str, float]
    timings: list[TimingRow]


class MeasuredArm(TypedDict):
    """An arm in facts.json, as it was when it was measured; no addresses.

    `schedule`, `pattern` and `full` (number of full layers) are null for a model without indexers.
    """

    name: str
    model: str
    schedule: ScheduleText
    pattern: str | None
    full: int | None
    parity_of: str | None
    servers: int
    check: JsonObject


class ScheduleText(TypedDict):
    """A schedule as run.json has it, without its other forms."""

    text: str | None


class BenchFacts(TypedDict):
    """facts.json: the load, the arms, and what their servers reported."""

    bench: dict[str, JsonValue]
    baseline: str
    environment: JsonObject
    arms: list[MeasuredArm]


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of one arm.

    Attributes:
        arm: its name.
        number: of the round, from 0; the closing one of the baseline comes last.
        timings: every request.
        counted: what its servers counted meanwhile.
    """

    arm: str
    number: int
    timings: tuple[Timing, ...]
    counted: Mapping[str, float]

    def row(self) -> RoundRow:
        """For the records."""
        return {
            "sample_id": f"{self.arm}/{self.number}",
            "arm": self.arm,
            "number": self.number,
            "counted": dict(self.counted),
            "timings": [timing.row() for timing in self.timings],
        }

    @classmethod
    def of(cls, row: RoundRow) -> Round:
        """The inverse of `row`."""
        timings = tuple(Timing.of(t) for t in row["timings"])
        return cls(row["arm"], row["number"], timings, row["counted"])


@dataclass(frozen=True, slots=True)
class ArmSpeed:
    """Speed of one arm over its rounds.

    Attributes:
        arm: its name.
        measures: by window; ``steady`` is absent where a round has no steady window.
        rates: output tokens per second of the servers together, by window, blocks of time
            resampled.
        latencies: means with intervals, by window and name, requests resampled.
        succeeded: requests.
        failed: requests.
        errors: what the failed ones said, most frequent first.
        cached: share of the input that came out of the prefix cache; None where nobody tells.
        accept_length: proxy, see `evalkit.bench.server_metrics`; None without speculation.
    """

    arm: str
    measures: Mapping[str, WindowMetrics]
    rates: Mapping[str, SpeedInterval]
    latencies: Mapping[str, Mapping[str, SpeedInterval]]
    succeeded: int
    failed: int
    errors: tuple[str, ...]
    cached: float | None
    accept_length: float | None


@dataclass(frozen=True, slots=True)
class Drift:
    """The baseline measured first and last.

    Attributes:
        first: output tokens per second.
        last: likewise.
        window: that both have.
        limit: largest difference that is let pass.
    """

    first: float
    last: float
    window: str
    limit: float

    @property
    def change(self) -> float:
        """last ÷ first − 1."""
        return self.last / self.first - 1

    @property
    def holds(self) -> bool:
        """Whether speeds may be compared."""
        return abs(self.change) <= self.limit


def speed(rounds: Sequence[Round], config: BenchConfig) -> ArmSpeed:
    """Throughput and latency of one arm."""
    settings = interval_settings(config)
    timings = [timing for round_ in rounds for timing in round_.timings]
    errors = [t.error for t in timings if t.error is not None]
    by_name = {name: parts([r.timings for r in rounds], name) for name in WINDOWS}
    by_name = {name: windows for name, windows in by_name.items() if windows}
    return ArmSpeed(
        arm=rounds[0].arm,
        measures={name: measure(windows, config.cards) for name, windows in by_name.items()},
        rates={name: estimate(rate(windows), settings) for name, windows in by_name.items()},
        latencies={
            name: {key: estimate(latency(key, windows), settings) for key in LATENCIES}
            for name, windows in by_name.items()
        },
        succeeded=len(timings) - len(errors),
        failed=len(errors),
        errors=tuple(sorted(set(errors), key=lambda e: (-errors.count(e), e))),
        cached=_cached(rounds),
        accept_length=accept_length_of([r.counted for r in rounds]),
    )


def ratios(
    arm: Sequence[Round], base: Sequence[Round], config: BenchConfig
) -> dict[str, SpeedInterval]:
    """arm ÷ baseline of output tokens per second, for every window that both have."""
    settings, result = interval_settings(config), {}
    for name in WINDOWS:
        ours = parts([r.timings for r in arm], name)
        theirs = parts([r.timings for r in base], name)
        if ours and theirs:
            result[name] = ratio(rate(ours), rate(theirs), settings)
    return result


def latency_ratios(
    arm: Sequence[Round], base: Sequence[Round], config: BenchConfig
) -> dict[str, dict[str, SpeedInterval]]:
    """arm ÷ baseline of mean TTFT, TPOT and ITL, by window and name."""
    settings = interval_settings(config)
    result: dict[str, dict[str, SpeedInterval]] = {}
    for name in WINDOWS:
        ours = parts([r.timings for r in arm], name)
        theirs = parts([r.timings for r in base], name)
        if ours and theirs:
            result[name] = {
                key: ratio(latency(key, ours), latency(key, theirs), settings) for key in LATENCIES
            }
    return result


def drift(base: Sequence[Round], config: BenchConfig) -> Drift | None:
    """The baseline's first round beside its last; None with one round only."""
    if len(base) < 2:
        return None
    for name in WINDOWS:
        first, last = parts([base[0].timings], name), parts([base[-1].timings], name)
        if first and last:
            return Drift(rate(first).value, rate(last).value, name, config.max_drift)
    return None


def interval_settings(config: BenchConfig) -> IntervalSettings:
    """The settings of the intervals."""
    return IntervalSettings(config.confidence, config.resamples, config.seed)


def _cached(rounds: Sequence[Round]) -> float | None:
    """Share of the input out of the prefix cache: by the replies, else by the servers' counters."""
    good = [t for r in rounds for t in r.timings if t.error is None]
    told = [t for t in good if t.cached_tokens is not None]
    if told:
        return sum(t.cached_tokens or 0 for t in told) / sum(t.input_tokens for t in told)
    asked = sum(r.counted.get("cache_queries", 0.0) for r in rounds)
    return sum(r.counted.get("cache_hits", 0.0) for r in rounds) / asked if asked > 0 else None
