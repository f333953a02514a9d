"""Speed beside quality: one table of decisions, one of measures, and the notes.

No speed is shown without the quality verdict of the same arm, and none is compared when the
baseline drifted between its first and its last round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from evalkit.bench.intervals import SpeedInterval
from evalkit.bench.metrics import LatencySummary
from evalkit.bench.quality import NOT_EVALUATED, ArmIdentity, Quality, qualities
from evalkit.bench.results import (
    WINDOWS,
    ArmSpeed,
    BenchFacts,
    Drift,
    MeasuredArm,
    Round,
    drift,
    latency_ratios,
    ratios,
    speed,
)
from evalkit.config.bench import BenchConfig
from evalkit.core.files import write_atomic, write_object
from evalkit.core.grid import Grid
from evalkit.core.recipe import parse
from evalkit.dsa.json_types import JsonValue, as_object
from evalkit.report.markdown import escape, table_lines
from evalkit.run.store import RunStore

FASTER, SLOWER, UNCLEAR = "faster", "slower", "no clear difference"


@dataclass(frozen=True, slots=True)
class ArmReport:
    """One arm of the report.

    Attributes:
        facts: as measured.
        quality: of the same arm.
        speed: None where it was not measured (not engaged).
        ratios: of output tokens per second to the baseline, by window; empty for the baseline, and
            after drift.
        latency_ratios: by window and name; likewise.
    """

    facts: MeasuredArm
    quality: Quality
    speed: ArmSpeed | None
    ratios: Mapping[str, SpeedInterval]
    latency_ratios: Mapping[str, Mapping[str, SpeedInterval]]

    @property
    def name(self) -> str:
        """Of the arm."""
        return self.facts["name"]


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Everything that is printed.

    Attributes:
        config: the load.
        baseline: name.
        arms: in the recipe's order.
        drift: of the baseline.
        parity: lines about arms that name another build.
    """

    config: BenchConfig
    baseline: str
    arms: tuple[ArmReport, ...]
    drift: Drift | None
    parity: tuple[str, ...]


def build(facts: BenchFacts, rounds: Sequence[Round], store: RunStore) -> BenchReport:
    """The report of a measurement."""
    config = parse({**facts["bench"], "prompts": "tokens"}, BenchConfig, "bench/facts.json")
    config = config.model_copy(update={"prompts": facts["bench"]["prompts"]})
    baseline = facts["baseline"]
    by_arm: dict[str, list[Round]] = {}
    for round_ in rounds:
        by_arm.setdefault(round_.arm, []).append(round_)
    base = by_arm[baseline]
    drifted = drift(base, config)
    comparable = drifted is None or drifted.holds
    identities = {e["name"]: ArmIdentity(e["model"], e["schedule"]["text"]) for e in facts["arms"]}
    quality = qualities(store, baseline, identities)
    arms = []
    for entry in facts["arms"]:
        name = entry["name"]
        ours = by_arm.get(name, [])
        compared = bool(ours) and name != baseline and comparable
        arms.append(
            ArmReport(
                entry,
                quality[name],
                speed(ours, config) if ours else None,
                ratios(ours, base, config) if compared else {},
                latency_ratios(ours, base, config) if compared else {},
            )
        )
    parity = tuple(_parity(facts, by_arm, config, store, identities)) if comparable else ()
    return BenchReport(config, baseline, tuple(arms), drifted, parity)


def verdict(arm: ArmReport, baseline: str, drifted: Drift | None) -> str:
    """Speed and quality in one phrase."""
    if arm.speed is None:
        return "not engaged: not measured"
    if arm.name == baseline:
        return "baseline"
    if drifted is not None and not drifted.holds:
        return f"drift: no speed compared; quality {arm.quality.verdict}"
    change = arm.ratios.get("steady") or arm.ratios.get("whole")
    if change is None:
        return f"no window to compare; quality {arm.quality.verdict}"
    word = FASTER if change.low > 1 else SLOWER if change.high < 1 else UNCLEAR
    return f"{word}; quality {arm.quality.verdict}"


def decisions(report: BenchReport) -> Grid:
    """Arm, pattern, quality Δ with interval, speed ratio with interval, verdict."""
    percent = f"{report.config.confidence:.0%}".replace("%", " %")
    rows = []
    for arm in report.arms:
        full = arm.facts["full"]
        pattern = arm.facts["pattern"]
        rows.append(
            (
                arm.name,
                "–" if pattern is None else f"{_short(pattern)} ({full}/{len(pattern)} F)",
                _delta(arm.quality),
                *(_ratio(arm.ratios.get(name)) for name in WINDOWS),
                verdict(arm, report.baseline, report.drift),
            )
        )
    head = ("arm", "pattern", "quality Δ", "speed × (steady)", "speed × (whole)", "verdict")
    load = report.config
    arriving = "" if load.rate is None else f", {load.rate:g}/s {load.arrival}"
    title = (
        f"speed and quality against {report.baseline}, {percent} intervals; {load.input_tokens} in,"
        f" {load.output_tokens} out, {load.requests} requests, {load.concurrency} at once{arriving}"
    )
    return Grid(title, head, tuple(rows), (2, 3, 4))


def measures(report: BenchReport) -> Grid:
    """Throughput and latencies of every arm in both windows."""
    rows = []
    for arm in report.arms:
        if arm.speed is None:
            continue
        for name, metrics in arm.speed.measures.items():
            rate, cards = arm.speed.rates[name], report.config.cards
            per_card = SpeedInterval(metrics.per_card, rate.low / cards, rate.high / cards)
            rows.append(
                (
                    arm.name,
                    name,
                    f"{metrics.seconds:.1f}",
                    str(metrics.requests),
                    f"{arm.speed.succeeded}/{arm.speed.failed}",
                    _number(metrics.tokens_per_second),
                    _with_interval(per_card),
                    *(_milliseconds(s) for s in (metrics.ttft, metrics.tpot, metrics.itl)),
                    arm.quality.verdict,
                )
            )
    times = tuple(f"{name} ms: mean P50 P90 P99" for name in ("TTFT", "TPOT", "ITL"))
    head = ("arm", "window", "s", "requests", "ok/failed", "tok/s", "tok/s per card", *times)
    return Grid(
        "measures; each window has its own denominator",
        (*head, "quality"),
        tuple(rows),
        (2, 3, 4, 5, 6, 7, 8, 9),
    )


def notes(report: BenchReport) -> list[str]:
    """Drift, parity, prefix cache, speculation, failures, what is missing."""
    lines = [_drift_line(report.drift)]
    lines += report.parity
    for arm in report.arms:
        if arm.speed is not None:
            lines += _speed_notes(arm, arm.speed)
        check = arm.facts["check"]
        if check["verdict"] != "engaged":
            lines.append(f"{arm.name}: schedule {check['verdict']}: {check['reason']}")
        if arm.quality.note and arm.quality.verdict != "baseline":
            lines.append(f"{arm.name}: quality: {arm.quality.note}")
    return lines


def _speed_notes(arm: ArmReport, speed: ArmSpeed) -> list[str]:
    lines = []
    if "steady" not in speed.measures:
        lines.append(f"{arm.name}: no steady window: too few requests for one")
    if speed.failed:
        lines.append(f"{arm.name}: {speed.failed} requests failed: {speed.errors[0]}")
    if speed.cached is not None:
        lines.append(f"{arm.name}: {speed.cached:.1%} of the input out of the prefix cache")
    if speed.accept_length is not None:
        lines.append(
            f"{arm.name}: accept-length proxy {speed.accept_length:.3f} (tokens per verification"
            " call over all requests; not an acceptance rate, no statement on quality)"
        )
    for name, ratio in (arm.latency_ratios.get("steady") or {}).items():
        lines.append(f"{arm.name}: mean {name.upper()} × {_ratio(ratio)} (steady)")
    return lines


def markdown(report: BenchReport) -> str:
    """bench.md."""
    parts = ["# Speed beside quality", "", *table_lines(decisions(report))]
    parts += ["", *table_lines(measures(report)), "", "Notes:", ""]
    return "\n".join([*parts, *(f"- {escape(line)}" for line in notes(report))]) + "\n"


def as_json(report: BenchReport) -> dict[str, JsonValue]:
    """bench.json."""
    drifted = report.drift
    return {
        "bench": report.config.model_dump(mode="json"),
        "baseline": report.baseline,
        "drift": None
        if drifted is None
        else asdict(drifted) | {"change": drifted.change, "holds": drifted.holds},
        "arms": [
            {
                "name": arm.name,
                "pattern": arm.facts["pattern"],
                "engagement": arm.facts["check"]["verdict"],
                "quality": asdict(arm.quality),
                "speed": None if arm.speed is None else asdict(arm.speed),
                "ratios": {k: asdict(v) for k, v in arm.ratios.items()},
                "latency_ratios": {
                    k: {n: asdict(e) for n, e in v.items()} for k, v in arm.latency_ratios.items()
                },
                "verdict": verdict(arm, report.baseline, report.drift),
            }
            for arm in report.arms
        ],
        "notes": notes(report),
    }


def write(store: RunStore, report: BenchReport) -> None:
    """bench.json and bench.md beside the run."""
    write_object(store.path / "bench.json", as_object(_without_nan(as_json(report))))
    write_atomic(store.path / "bench.md", markdown(report))


def _parity(
    facts: BenchFacts,
    by_arm: Mapping[str, Sequence[Round]],
    config: BenchConfig,
    store: RunStore,
    identities: Mapping[str, ArmIdentity],
) -> list[str]:
    """Arms beside the other build that they name."""
    lines = []
    for entry in facts["arms"]:
        name, twin = entry["name"], entry["parity_of"]
        if twin is None or name not in by_arm or twin not in by_arm:
            continue
        by_window = ratios(by_arm[name], by_arm[twin], config)
        window = next(iter(by_window), None)
        if window is None:
            continue
        change = by_window[window].value - 1
        word = "within" if abs(change) <= config.max_drift else "beyond"
        quality = qualities(store, twin, {name: identities[name]})[name]
        lines.append(
            f"parity of {name} with {twin}: speed {change:+.1%} ({window}), {word} the limit of"
            f" {config.max_drift:.1%}; quality Δ {_delta(quality)} ({quality.verdict})"
        )
    return lines


def _drift_line(drifted: Drift | None) -> str:
    if drifted is None:
        return "drift: not known: the baseline was measured once"
    word = "within" if drifted.holds else "beyond"
    more = "" if drifted.holds else ": no speeds are compared"
    return (
        f"drift: the baseline's last round was {drifted.change:+.1%} beside its first"
        f" ({drifted.window} window), {word} the limit of {drifted.limit:.1%}{more}"
    )


def _short(pattern: str) -> str:
    return pattern if len(pattern) <= 24 else f"{pattern[:21]}…"


def _delta(quality: Quality) -> str:
    if quality.delta is None:
        return "–" if quality.verdict == "baseline" else NOT_EVALUATED
    return f"{quality.delta:+.3f} [{quality.low:+.3f}, {quality.high:+.3f}]"


def _ratio(ratio: SpeedInterval | None) -> str:
    return "–" if ratio is None else f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _with_interval(speed: SpeedInterval) -> str:
    return f"{_number(speed.value)} [{_number(speed.low)}, {_number(speed.high)}]"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _milliseconds(latency: LatencySummary) -> str:
    values = (latency.mean, latency.p50, latency.p90, latency.p99)
    return " ".join("–" if math.isnan(v) else f"{1000 * v:.1f}" for v in values)


def _without_nan(value: JsonValue) -> JsonValue:
    """nan as null: JSON has none."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
