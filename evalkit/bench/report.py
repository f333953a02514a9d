"""What an arm buys, beside what it costs: one table of decisions, one of measures, and the notes.

No speed is shown without the quality verdict of the same arm, and none is compared when the
baseline drifted between its first and its last round.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evalkit.bench.intervals import Estimate
from evalkit.bench.metrics import Spread
from evalkit.bench.quality import NOT_EVALUATED, MeasuredArm, Quality, qualities
from evalkit.bench.results import (
    WINDOWS,
    Drift,
    Round,
    Speed,
    drift,
    latency_ratios,
    ratios,
    speed,
)
from evalkit.config.bench import BenchConfig
from evalkit.core.files import write_atomic
from evalkit.core.grid import Grid
from evalkit.core.recipe import parse
from evalkit.report.markdown import escape, table_lines
from evalkit.run.store import RunStore

FASTER, SLOWER, UNCLEAR = "faster", "slower", "no clear difference"


@dataclass(frozen=True, slots=True)
class Line:
    """One arm of the report.

    Attributes:
        facts: as measured: name, pattern, check.
        quality: of the same arm.
        speed: None where it was not measured (not engaged).
        ratios: of output tokens per second to the baseline, by window; empty for the baseline, and
            after drift.
        latency_ratios: by window and name; likewise.
    """

    facts: Mapping[str, Any]
    quality: Quality
    speed: Speed | None
    ratios: Mapping[str, Estimate]
    latency_ratios: Mapping[str, Mapping[str, Estimate]]

    @property
    def name(self) -> str:
        """Of the arm."""
        return str(self.facts["name"])


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Everything that is printed.

    Attributes:
        config: the load.
        baseline: name.
        lines: one per arm, in the recipe's order.
        drift: of the baseline.
        parity: lines about arms that name another build.
    """

    config: BenchConfig
    baseline: str
    lines: tuple[Line, ...]
    drift: Drift | None
    parity: tuple[str, ...]


def build(facts: Mapping[str, Any], rounds: Sequence[Round], store: RunStore) -> BenchReport:
    """The report of a measurement."""
    config = parse(dict(facts["bench"]) | {"prompts": "tokens"}, BenchConfig, "bench/facts.json")
    config = config.model_copy(update={"prompts": facts["bench"]["prompts"]})
    baseline = str(facts["baseline"])
    by_arm: dict[str, list[Round]] = {}
    for round_ in rounds:
        by_arm.setdefault(round_.arm, []).append(round_)
    base = by_arm[baseline]
    drifted = drift(base, config)
    comparable = drifted is None or drifted.holds
    arms = {e["name"]: MeasuredArm(e["model"], e["schedule"]["text"]) for e in facts["arms"]}
    quality = qualities(store, baseline, arms)
    lines = []
    for entry in facts["arms"]:
        name = entry["name"]
        ours = by_arm.get(name, [])
        compared = bool(ours) and name != baseline and comparable
        lines.append(
            Line(
                entry,
                quality[name],
                speed(ours, config) if ours else None,
                ratios(ours, base, config) if compared else {},
                latency_ratios(ours, base, config) if compared else {},
            )
        )
    parity = tuple(_parity(facts, by_arm, config, store, arms)) if comparable else ()
    return BenchReport(config, baseline, tuple(lines), drifted, parity)


def verdict(line: Line, baseline: str, drifted: Drift | None) -> str:
    """Speed and quality in one phrase."""
    if line.speed is None:
        return "not engaged: not measured"
    if line.name == baseline:
        return "baseline"
    if drifted is not None and not drifted.holds:
        return f"drift: no speed compared; quality {line.quality.verdict}"
    found = line.ratios.get("steady") or line.ratios.get("whole")
    if found is None:
        return f"no window to compare; quality {line.quality.verdict}"
    word = FASTER if found.low > 1 else SLOWER if found.high < 1 else UNCLEAR
    return f"{word}; quality {line.quality.verdict}"


def decisions(report: BenchReport) -> Grid:
    """Arm, pattern, quality Δ with interval, speed ratio with interval, verdict."""
    percent = f"{report.config.confidence:.0%}".replace("%", " %")
    rows = []
    for line in report.lines:
        full = line.facts["full"]
        pattern = line.facts["pattern"]
        rows.append(
            (
                line.name,
                "–" if pattern is None else f"{_short(pattern)} ({full}/{len(pattern)} F)",
                _delta(line.quality),
                *(_ratio(line.ratios.get(name)) for name in WINDOWS),
                verdict(line, report.baseline, report.drift),
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
    for line in report.lines:
        if line.speed is None:
            continue
        for name, found in line.speed.measures.items():
            rate, cards = line.speed.rates[name], report.config.cards
            per_card = Estimate(found.per_card, rate.low / cards, rate.high / cards)
            rows.append(
                (
                    line.name,
                    name,
                    f"{found.seconds:.1f}",
                    str(found.requests),
                    f"{line.speed.succeeded}/{line.speed.failed}",
                    _number(found.tokens_per_second),
                    _with_interval(per_card),
                    *(_spread(s) for s in (found.ttft, found.tpot, found.itl)),
                    line.quality.verdict,
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
    for line in report.lines:
        found = line.speed
        if found is not None:
            lines += _facts_of(line, found)
        check = line.facts["check"]
        if check["verdict"] != "engaged":
            lines.append(f"{line.name}: schedule {check['verdict']}: {check['reason']}")
        if line.quality.note and line.quality.verdict != "baseline":
            lines.append(f"{line.name}: quality: {line.quality.note}")
    return lines


def _facts_of(line: Line, found: Speed) -> list[str]:
    lines = []
    if "steady" not in found.measures:
        lines.append(f"{line.name}: no steady window: too few requests for one")
    if found.failed:
        lines.append(f"{line.name}: {found.failed} requests failed: {found.errors[0]}")
    if found.cached is not None:
        lines.append(f"{line.name}: {found.cached:.1%} of the input out of the prefix cache")
    if found.accept_length is not None:
        lines.append(
            f"{line.name}: accept-length proxy {found.accept_length:.3f} (tokens per verification"
            " call over all requests; not an acceptance rate, no statement on quality)"
        )
    for name, ratio in (line.latency_ratios.get("steady") or {}).items():
        lines.append(f"{line.name}: mean {name.upper()} × {_ratio(ratio)} (steady)")
    return lines


def markdown(report: BenchReport) -> str:
    """bench.md."""
    parts = ["# Speed beside quality", "", *table_lines(decisions(report))]
    parts += ["", *table_lines(measures(report)), "", "Notes:", ""]
    return "\n".join([*parts, *(f"- {escape(line)}" for line in notes(report))]) + "\n"


def as_json(report: BenchReport) -> dict[str, Any]:
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
                "name": line.name,
                "pattern": line.facts["pattern"],
                "engagement": line.facts["check"]["verdict"],
                "quality": asdict(line.quality),
                "speed": None if line.speed is None else asdict(line.speed),
                "ratios": {k: asdict(v) for k, v in line.ratios.items()},
                "latency_ratios": {
                    k: {n: asdict(e) for n, e in v.items()} for k, v in line.latency_ratios.items()
                },
                "verdict": verdict(line, report.baseline, report.drift),
            }
            for line in report.lines
        ],
        "notes": notes(report),
    }


def write(store: RunStore, report: BenchReport) -> None:
    """bench.json and bench.md beside the run."""
    text = json.dumps(_plain(as_json(report)), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(store.path / "bench.json", text + "\n")
    write_atomic(store.path / "bench.md", markdown(report))


def _parity(
    facts: Mapping[str, Any],
    by_arm: Mapping[str, Sequence[Round]],
    config: BenchConfig,
    store: RunStore,
    arms: Mapping[str, MeasuredArm],
) -> list[str]:
    """Arms beside the other build that they name."""
    lines = []
    for entry in facts["arms"]:
        name, twin = entry["name"], entry["parity_of"]
        if twin is None or name not in by_arm or twin not in by_arm:
            continue
        found = ratios(by_arm[name], by_arm[twin], config)
        window = next(iter(found), None)
        if window is None:
            continue
        change = found[window].value - 1
        word = "within" if abs(change) <= config.max_drift else "beyond"
        quality = qualities(store, twin, {name: arms[name]})[name]
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


def _ratio(found: Estimate | None) -> str:
    return "–" if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _with_interval(found: Estimate) -> str:
    return f"{_number(found.value)} [{_number(found.low)}, {_number(found.high)}]"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _spread(found: Spread) -> str:
    values = (found.mean, found.p50, found.p90, found.p99)
    return " ".join("–" if math.isnan(v) else f"{1000 * v:.1f}" for v in values)


def _plain(value: Any) -> Any:
    """nan as null: JSON has none."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
