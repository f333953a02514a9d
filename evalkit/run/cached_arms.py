"""Which arms of a run may be answered from a cache, and by what their answers are known."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from evalkit.config.arm import ArmConfig
from evalkit.config.engine import ENGINES
from evalkit.config.server import PLACE_FIELDS
from evalkit.core.provenance import environment
from evalkit.core.recipe import canonical_hash
from evalkit.core.records import ArmEntry, RunRecord
from evalkit.core.secrets import hide_fields
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.run.answer_cache import AnswerCache, ArmAnswers
from evalkit.run.plan import RunPlan

_log = logging.getLogger("evalkit")


def cached_arms(
    cache: AnswerCache,
    todo: RunPlan,
    run: RunRecord,
    arms: Sequence[ArmConfig],
    facts: JsonObject,
    schedules: Mapping[str, ReuseSchedule | None],
) -> dict[str, ArmAnswers]:
    """The cached answers of every arm that may have some, by name.

    A repetition has none: the arm that repeats the baseline, and any that does the same as one
    before it. What is sampled, or answered by a checkpoint that is not known, has none either.

    Args:
        cache: the whole.
        todo: the run.
        run: as it stands, with the checks of the arms' servers.
        arms: of one checkpoint, in order.
        facts: of that checkpoint, by the engine.
        schedules: of the arms.
    """
    engine = ENGINES.of(todo.config.engine)
    if not engine.repeatable(todo.config.engine):
        _log.warning("--cache: %s does not give the same answer twice: not used", engine.name)
        return {}
    common = _common(todo, facts)
    answers: dict[str, ArmAnswers] = {}
    for arm in todo.config.arms:
        if arm not in arms or arm.name == todo.config.compare.repeat_of_baseline:
            continue
        checkpoint = _checkpoint(run.arm(arm.name), facts)
        if checkpoint is None:
            _log.warning(
                "--cache: arm %s is not served from it: its checkpoint is not known (a server needs"
                " engine.probe_prompts, answered twice alike)",
                arm.name,
            )
            continue
        settings = {**common, **_of_arm(arm, todo, schedules[arm.name]), "checkpoint": checkpoint}
        known = canonical_hash(settings)
        if known not in {other.settings for other in answers.values()}:
            answers[arm.name] = ArmAnswers(cache, known)
    return answers


def _common(todo: RunPlan, facts: JsonObject) -> JsonObject:
    """What moves answers of all arms: engine, prompts' policy, versions, device."""
    engine = todo.config.engine
    kind = ENGINES.of(engine)
    section = engine.model_dump(mode="json")
    if kind.servers:  # the client's side of it moves nothing
        section = {key: value for key, value in section.items() if key not in kind.throughput}
    versions = environment()
    return {
        "engine": hide_fields({"engine": section}),
        "facts": dict(facts),
        "packages": versions["packages"],
        "guests": dict(todo.packages),
        "commit": versions["commit"],
    }


def _of_arm(arm: ArmConfig, todo: RunPlan, schedule: ReuseSchedule | None) -> JsonObject:
    server = {} if arm.server is None else arm.server.model_dump(mode="json")
    indexer = todo.indexers.get(arm.name)
    return {
        "schedule": None if schedule is None else str(schedule),
        "selection": None if arm.selection is None else arm.selection.model_dump(mode="json"),
        "indexer": None if indexer is None else indexer["indexer_sha256"],
        "server": hide_fields({k: v for k, v in server.items() if k not in PLACE_FIELDS}),
    }


def _checkpoint(entry: ArmEntry, facts: JsonObject) -> JsonValue:
    """Weights, or revision of the hub; of a server what it reports and how it answers the probe."""
    if facts.get("weights_sha256") or facts.get("revision"):
        return "in facts"
    if entry.check is None or not entry.check.deterministic:
        return None
    return {
        "model": entry.model,
        "servers": [dict(server) for server in entry.check.servers],
        "probe": dict(entry.check.probe),
    }
