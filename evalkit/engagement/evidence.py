"""Evidence by source: model, overrides, log, returned selections, probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalkit.config.arm import ArmConfig
from evalkit.config.server import CUSTOM
from evalkit.core.records import ArmEntry
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.config_fields import override_fields
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import read
from evalkit.dsa.engine_config.versions import EngineChoice, choose, families
from evalkit.dsa.families.registry import FAMILIES
from evalkit.dsa.json_types import JsonObject
from evalkit.engagement.behavioral_probe import ProbeAgreement, agreement
from evalkit.engagement.findings import Finding
from evalkit.engagement.server_info import REUSE_FIELDS, ServerInfo
from evalkit.engagement.server_logs import LogFacts, LoggedSchedule

OWN_BUILD = "a build of its own: markers in its log decide"


def is_off(arm: ArmConfig, schedule: ReuseSchedule | None, native: ReuseSchedule | None) -> bool:
    """Whether the arm runs the checkpoint's own schedule with nothing switched on."""
    server = arm.server
    if server is None or schedule != native:
        return schedule == native
    custom_start = server.environment or server.flags or server.markers
    return not server.enabled and not (server.engine == CUSTOM and custom_start)


def dialect_of(
    arm: ArmConfig, info: ServerInfo, schedule: ReuseSchedule, model_type: str
) -> EngineChoice | None:
    """Dialect of the arm's settings: named, or the only one that fits such a server.

    The version is the server's where the named engine is the one that answers.

    Raises:
        ScheduleError: no row of the engine reads that version.
    """
    named = arm.server.engine if arm.server is not None else None
    if named == CUSTOM:
        return EngineChoice(CUSTOM, "", "as named")
    if named is not None:
        family = named.partition("==")[0]
        known = family in families() and info.kind == family.removesuffix("-plugin")
        reported = info.version if known else ""
        return choose(named, model_type=model_type, reported=reported)
    if info.kind == "transformers":
        record = FAMILIES.get(model_type)
        known = record is not None and bool(record.dialect)
        return choose(info.kind, model_type=model_type) if known else None
    if info.kind in ("sglang", "vllm") and schedule.every_layer:
        return choose(info.kind, model_type=model_type, reported=info.version)
    return None


def model_finding(named: str | None, model: str, info: ServerInfo) -> Finding:
    """Does the server serve the arm's checkpoint, by its path or by the name that the recipe gives?

    Args:
        named: ``served_model`` of the arm, or of the engine.
        model: the checkpoint.
        info: the server in its own words.
    """
    if named is not None and named in info.models:
        return Finding("model", True, f"serves {named}, as the recipe names it")
    if not info.models:
        return Finding("model", None, "the server lists no model")
    wanted = Path(model).name.lower()
    if any(Path(name).name.lower() == wanted for name in info.models):
        return Finding("model", True, f"serves {wanted}")
    listed = ", ".join(info.models)
    return Finding("model", False, f"serves {listed}, the arm wants {model} (or set served_model)")


def overrides_finding(
    arm: ArmConfig,
    schedule: ReuseSchedule,
    native: ReuseSchedule,
    info: ServerInfo,
    overrides: JsonObject | None,
    config: JsonObject,
) -> Finding:
    """Do the settings that the server was started with mean the arm's schedule, layer by layer?

    Args:
        arm: under test.
        schedule: of the arm.
        native: of its checkpoint.
        info: the server in its own words.
        overrides: of the server, by its own words or its log; None where it does not tell.
        config: the checkpoint's config.json as written.
    """
    model_type = str(config.get("model_type", ""))
    try:
        choice = dialect_of(arm, info, schedule, model_type)
    except ScheduleError as error:
        return Finding("overrides", None, str(error))
    custom = choice is not None and choice.name == CUSTOM
    if custom or overrides is None:
        untold = "the server does not tell its overrides"
        return Finding("overrides", None, OWN_BUILD if custom else untold)
    fields = override_fields(overrides)
    requested = [name for name in REUSE_FIELDS if fields.get(name) is not None]
    if is_off(arm, schedule, native) and info.kind != "transformers":
        return _off_finding(requested, fields)
    if choice is None:
        known = ", ".join(name for name, row in DIALECTS.items() if row.launch)
        return Finding("overrides", None, f"set server.engine, whose settings these are: {known}")
    try:
        effective = read(
            config,
            engine=choice.name,
            layers=schedule.layer_ids,
            native=native,
            overrides=overrides,
        )
    except ScheduleError as error:
        return Finding("overrides", False, f"the overrides cannot run: {error}")
    enabled = arm.server is not None and arm.server.enabled
    whole = DIALECTS[choice.name].plugin
    problem = _difference(effective.schedule, schedule, choice.label, whole=whole)
    if problem and effective.decided_by not in requested:
        problem = f"{problem}; {effective.decided_by} decides"
    if not problem and enabled and not requested:
        problem = "reuse is off, the arm wants it on (frequency 1 is another code path than off)"
    warnings = "".join(f"; {text}" for text in (choice.caution, *effective.warnings) if text)
    origin = f" ({choice.origin})" if choice.version else ""
    text = (
        f"its settings give full layers {_ids(schedule.full_layer_ids)} by the rules of"
        f" {choice.label}{origin}{warnings}"
    )
    # transformers builds no indexer where a layer is shared: there the settings are the proof.
    proof = not problem and info.kind == "transformers"
    return Finding("overrides", not problem, problem or text, proof)


def _off_finding(requested: Sequence[str], overrides: JsonObject) -> Finding:
    if requested:
        settings = ", ".join(f"{name} = {overrides[name]!r}" for name in requested)
        text = f"the arm wants reuse off, the server was started with {settings}"
        return Finding("overrides", False, text)
    return Finding("overrides", True, "no reuse setting is set", proof=True)


def _difference(
    effective: ReuseSchedule, wanted: ReuseSchedule, engine: str, *, whole: bool
) -> str:
    """What is wrong with what runs; "" where it is the arm's (the layers alone, if not `whole`)."""
    if effective == wanted or (effective.computes == wanted.computes and not whole):
        return ""
    if effective.computes == wanted.computes:
        return f"{engine} runs {effective}, the arm wants {wanted}"
    same_count = sum(effective.computes) == sum(wanted.computes)
    equal = " (as many, and not the same)" if same_count else ""
    return (
        f"{engine} runs full layers {_ids(effective.full_layer_ids)}, the arm wants"
        f" {_ids(wanted.full_layer_ids)}{equal}"
    )


def log_findings(
    arm: ArmConfig, schedule: ReuseSchedule, off: bool, facts: LogFacts
) -> Iterator[Finding]:
    """Printed schedules, markers of every rank, fallbacks."""
    for logged in facts.schedules:
        yield _logged_finding(schedule, logged)
    for text, ranks in facts.in_force.items():
        yield plugin_finding("log", arm, schedule, [text] * len(ranks))
    if not off:
        for line in facts.fallbacks[:1]:
            more = f" (and {len(facts.fallbacks) - 1} more)" if len(facts.fallbacks) > 1 else ""
            yield Finding("log", False, f"a rank fell back: {line}{more}")
        yield from _marker_findings(arm, facts)
    for note in facts.notes[:3]:
        yield Finding("log", None, note)


def plugin_finding(
    what: str, arm: ArmConfig, schedule: ReuseSchedule, said: Sequence[str]
) -> Finding:
    """What the ranks of a vLLM with our plugin say that they run.

    Args:
        what: where they say it.
        arm: under test.
        schedule: of the arm.
        said: schedule as text, one per rank.
    """
    other = next((text for text in said if text != str(schedule)), None)
    if other is not None or not wants_plugin(arm):
        wanted = f"the arm wants {schedule}" if wants_plugin(arm) else "the arm wants no plugin"
        return Finding(what, False, f"our plugin runs {other or said[0]}, {wanted}")
    expected = arm.server.ranks if arm.server is not None else None
    enough = len(said) >= (expected or 1)
    who = f"{len(said)} of {expected} ranks" if expected else f"{len(said)} ranks"
    return Finding(what, enough, f"our plugin runs {schedule} on {who}", proof=enough)


def wants_plugin(arm: ArmConfig) -> bool:
    """Whether the arm's server is a vLLM with our plugin."""
    named = arm.server.engine if arm.server is not None else None
    return named is not None and named != CUSTOM and DIALECTS[choose(named).name].plugin


def _logged_finding(schedule: ReuseSchedule, logged: LoggedSchedule) -> Finding:
    shared, problems = schedule.shared_layer_ids, []
    if logged.layers not in (None, len(schedule)):
        problems.append(f"{logged.layers} layers, not {len(schedule)}")
    if logged.shared not in (None, len(shared)):
        problems.append(f"{logged.shared} reusing layers, not {len(shared)}")
    if logged.shared_ids not in (None, shared):
        problems.append(f"reusing layers {_ids(logged.shared_ids or ())}, not {_ids(shared)}")
    if problems:
        return Finding("log", False, f"the log has {'; '.join(problems)}")
    if logged.shared_ids is not None:
        return Finding("log", True, f"the log has reusing layers {_ids(shared)}", proof=True)
    return Finding("log", True, "the log has as many reusing layers")


def _marker_findings(arm: ArmConfig, facts: LogFacts) -> Iterator[Finding]:
    server = arm.server
    expected = server.ranks if server is not None else None
    markers = dict(facts.markers)
    if not markers and server is not None and server.engine == CUSTOM:
        markers = {"captured": facts.captured}
    for marker, ranks in markers.items():
        numbered = {rank for rank in ranks if rank is not None}
        count = len(numbered) or len(ranks)
        enough = count >= (expected or 1)
        who = f"{count} of {expected} ranks" if expected else f"{count} ranks"
        yield Finding("log", enough, f"marker {marker!r}: written by {who}", proof=enough)


@dataclass(frozen=True, slots=True)
class CheckedArm:
    """An arm that was checked before.

    Attributes:
        name: of the arm.
        schedule: as text.
        continuations: by probe prompt; empty where it was not probed.
        servers: what its servers reported, as the record of the check keeps it.
    """

    name: str
    schedule: str
    continuations: Mapping[str, str]
    servers: Sequence[JsonObject] = ()


def checked_arms(entries: Sequence[ArmEntry]) -> list[CheckedArm]:
    """Arms of run.json whose servers were checked."""
    return [
        CheckedArm(entry.name, entry.schedule_text or "", entry.check.probe, entry.check.servers)
        for entry in entries
        if entry.check is not None
    ]


def probe_findings(
    probed: CheckedArm, others: Sequence[CheckedArm], *, deterministic: bool, configured: bool
) -> Iterator[Finding]:
    """Continuations beside those of other arms, and of this one before a restart.

    Args:
        probed: the arm, as it answers now.
        others: arms probed before, this one among them.
        deterministic: whether it gave the same twice just now.
        configured: whether the server's settings are the arm's; different continuations then
            show them at work.
    """
    if not deterministic:
        text = "the server gives other continuations the second time: the probe shows nothing"
        yield Finding("probe", None, text)
    for other in others:
        agreed = agreement(probed.continuations, other.continuations)
        if agreed.compared:
            yield from _agreement_findings(probed, other, agreed, deterministic, configured)


def _agreement_findings(
    probed: CheckedArm,
    other: CheckedArm,
    agreed: ProbeAgreement,
    deterministic: bool,
    configured: bool,
) -> Iterator[Finding]:
    share = f"{agreed.equal} of {agreed.compared} continuations"
    if other.name == probed.name:
        yield Finding("probe", None, f"{share} are those before the restart")
        return
    if other.schedule == probed.schedule:
        yield Finding("probe", None, f"{share} equal {other.name}'s (same schedule)")
        return
    if agreed.same:
        text = f"all continuations equal {other.name}'s: the setting probably did nothing"
        yield Finding("probe", None, text, did_nothing=True)
    elif deterministic:
        text = f"{share} equal {other.name}'s: the setting acts"
        yield Finding("probe", True, text, proof=configured)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"
