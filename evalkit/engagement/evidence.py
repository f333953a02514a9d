"""Evidence by source: model, overrides, log, returned selections, probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalkit.config.arm import ArmConfig
from evalkit.config.server import CUSTOM, ServerConfig
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import read
from evalkit.engagement.behavioral_probe import compare
from evalkit.engagement.findings import Finding
from evalkit.engagement.server_info import REUSE_FIELDS, Report
from evalkit.engagement.server_logs import LogFacts


def is_off(arm: ArmConfig, schedule: ReuseSchedule | None, native: ReuseSchedule | None) -> bool:
    """Whether the arm runs the checkpoint's own schedule with nothing switched on."""
    enabled = arm.server.enabled if arm.server else None
    custom = arm.server is not None and arm.server.engine == CUSTOM
    return schedule == native and not enabled and not (custom and _has_own_start(arm.server))


def _has_own_start(server: ServerConfig | None) -> bool:
    return server is not None and bool(server.environment or server.flags or server.markers)


_TRANSFORMERS = {
    "glm_moe_dsa": "transformers",
    "hy_v4": "transformers-hy-v4",
    "deepseek_v32": "transformers-v32",
    "deepseek_v4": "transformers-v4",
}


def dialect_of(arm: ArmConfig, kind: str, schedule: ReuseSchedule, model_type: str) -> str | None:
    """Language of the arm's settings: named, or the only one that fits such a server."""
    if arm.server is not None and arm.server.engine is not None:
        return arm.server.engine
    if kind == "transformers":
        return _TRANSFORMERS.get(model_type)
    everything = schedule.layer_ids == tuple(range(len(schedule)))
    return kind if kind in ("sglang", "vllm") and everything else None


def model_finding(arm: ArmConfig, model: str, report: Report) -> Finding:
    """Does the server serve the arm's checkpoint?"""
    named = arm.server.served_model if arm.server else None
    if named is not None and named in report.models:
        return Finding("model", True, f"serves {named}, as the arm names it")
    if not report.models:
        return Finding("model", None, "the server lists no model")
    wanted = Path(model).name.lower()
    if any(Path(name).name.lower() == wanted for name in report.models):
        return Finding("model", True, f"serves {wanted}")
    listed = ", ".join(report.models)
    return Finding("model", False, f"serves {listed}, the arm wants {model} (or set served_model)")


def overrides_finding(
    arm: ArmConfig,
    schedule: ReuseSchedule,
    native: ReuseSchedule,
    report: Report,
    overrides: Mapping[str, Any] | None,
    own: Mapping[str, Any],
) -> Finding:
    """Do the settings that the server was started with mean the arm's schedule, layer by layer?"""
    engine = dialect_of(arm, report.kind, schedule, str(own.get("model_type", "")))
    if engine == CUSTOM or overrides is None:
        custom = "a build of its own: markers in its log decide"
        text = custom if engine == CUSTOM else "the server does not tell its overrides"
        return Finding("overrides", None, text)
    asked = [name for name in REUSE_FIELDS if overrides.get(name) is not None]
    if is_off(arm, schedule, native) and report.kind != "transformers":
        return _off_finding(asked, overrides)
    if engine is None:
        known = ", ".join(name for name, row in DIALECTS.items() if row.launch)
        return Finding("overrides", None, f"set server.engine, whose settings these are: {known}")
    try:
        found = read({**own, **overrides}, engine=engine, layers=schedule.layer_ids, native=native)
    except ScheduleError as error:
        return Finding("overrides", False, f"the overrides cannot run: {error}")
    enabled = arm.server is not None and arm.server.enabled
    problem = _difference(found.schedule, schedule, engine)
    if not problem and enabled and not asked:
        problem = "reuse is off, the arm wants it on (frequency 1 is another code path than off)"
    warnings = "".join(f"; {warning}" for warning in found.warnings)
    text = f"its settings give full layers {_ids(schedule.full_layer_ids)}{warnings}"
    # transformers builds no indexer where a layer is shared: there the settings are the proof.
    proof = not problem and report.kind == "transformers"
    return Finding("overrides", not problem, problem or text, proof)


def _off_finding(asked: Sequence[str], overrides: Mapping[str, Any]) -> Finding:
    if asked:
        given = ", ".join(f"{name} = {overrides[name]!r}" for name in asked)
        text = f"the arm wants reuse off, the server was started with {given}"
        return Finding("overrides", False, text)
    return Finding("overrides", True, "no reuse setting is set", proof=True)


def _difference(found: ReuseSchedule, wanted: ReuseSchedule, engine: str) -> str:
    """What is wrong with the layers that run; "" where they are the arm's (a lag aside)."""
    if found.computes == wanted.computes:
        return ""
    same_count = sum(found.computes) == sum(wanted.computes)
    equal = " (as many, and not the same)" if same_count else ""
    return (
        f"{engine} runs full layers {_ids(found.full_layer_ids)}, the arm wants"
        f" {_ids(wanted.full_layer_ids)}{equal}"
    )


def log_findings(
    arm: ArmConfig, schedule: ReuseSchedule, off: bool, facts: LogFacts
) -> Iterator[Finding]:
    """Printed schedules, markers of every rank, fallbacks."""
    shared = schedule.shared_layer_ids
    for layers, skipped, ids in facts.schedules:
        wrong = []
        if layers is not None and layers != len(schedule):
            wrong.append(f"{layers} layers, not {len(schedule)}")
        if skipped is not None and skipped != len(shared):
            wrong.append(f"{skipped} reusing layers, not {len(shared)}")
        if ids is not None and ids != shared:
            wrong.append(f"reusing layers {_ids(ids)}, not {_ids(shared)}")
        if wrong:
            yield Finding("log", False, f"the log has {'; '.join(wrong)}")
        elif ids is not None:
            yield Finding("log", True, f"the log has reusing layers {_ids(ids)}", proof=True)
        else:
            yield Finding("log", True, "the log has as many reusing layers")
    if not off:
        for line in facts.fallbacks[:1]:
            more = f" (and {len(facts.fallbacks) - 1} more)" if len(facts.fallbacks) > 1 else ""
            yield Finding("log", False, f"a rank fell back: {line}{more}")
        yield from _marker_findings(arm, facts)
    for note in facts.notes[:3]:
        yield Finding("log", None, note)


def _marker_findings(arm: ArmConfig, facts: LogFacts) -> Iterator[Finding]:
    server = arm.server
    wanted = server.ranks if server is not None else None
    found = dict(facts.markers)
    if not found and server is not None and server.engine == CUSTOM:
        found = {"captured": facts.captured}
    for marker, ranks in found.items():
        numbered = {rank for rank in ranks if rank is not None}
        count = len(numbered) or len(ranks)
        enough = count >= (wanted or 1)
        who = f"{count} of {wanted} ranks" if wanted else f"{count} ranks"
        yield Finding("log", enough, f"marker {marker!r}: written by {who}", proof=enough)


def probe_findings(
    arm: str,
    probe: Mapping[str, str],
    deterministic: bool,
    schedule: str,
    entries: Sequence[Mapping[str, Any]],
    configured: bool,
) -> Iterator[Finding]:
    """Continuations beside those of other arms, and of this one before a restart.

    Args:
        arm: name.
        probe: its continuations.
        deterministic: whether it gave the same twice just now.
        schedule: its schedule as text.
        entries: arms of run.json.
        configured: whether the server's settings are the arm's; different continuations then
            show them at work.
    """
    if not deterministic:
        text = "the server gives other continuations the second time: the probe shows nothing"
        yield Finding("probe", None, text)
    for entry in entries:
        other = (entry.get("check") or {}).get("probe") or {}
        found = compare(probe, other)
        if found.compared == 0:
            continue
        name, share = entry["name"], f"{found.equal} of {found.compared}"
        theirs = (entry.get("schedule") or {}).get("text", "")
        if name == arm:
            yield Finding("probe", None, f"{share} continuations are those before the restart")
        elif theirs == schedule:
            yield Finding("probe", None, f"{share} continuations equal {name}'s (same schedule)")
        elif found.same:
            text = f"all continuations equal {name}'s: the setting probably did nothing"
            yield Finding("probe", None, text)
        elif deterministic:
            text = f"{share} continuations equal {name}'s: the setting acts"
            yield Finding("probe", True, text, proof=configured)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"
