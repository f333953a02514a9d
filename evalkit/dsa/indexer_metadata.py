"""Metadata of an indexer directory: schedule, hash, base model. Standard library only.

`evalkit.dsa.indexer_checkpoint` writes such directories and puts their tensors into models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from evalkit.dsa.files import file_sha256
from evalkit.dsa.json_types import JsonObject, JsonValue, as_list, as_object
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

INDEXER_FILE = "indexer.safetensors"
SCHEDULE_FILE = "schedule.json"
FORMAT = 1


class IndexerFileError(ValueError):
    """An indexer directory that cannot be used; the message names file and tensor."""


class IndexerFacts(TypedDict):
    """What identifies the indexers of a directory, for the records of runs that use them."""

    indexer_sha256: str
    indexer_schedule: str
    indexer_base: JsonObject


def schedule_facts(schedule: ReuseSchedule) -> dict[str, JsonValue]:
    """A schedule as JSON values; `schedule_from` is the inverse."""
    return {
        "text": str(schedule),
        "pattern": schedule.pattern,
        "source": list(schedule.source),
        "lag_phase": schedule.lag_phase,
        "layer_ids": list(schedule.layer_ids),
    }


def schedule_from(facts: JsonObject) -> ReuseSchedule:
    """The schedule of `schedule_facts`.

    Raises:
        ScheduleError: not a schedule.
    """
    phase, pattern = facts.get("lag_phase"), facts.get("pattern")
    if not isinstance(pattern, str) or not pattern or phase not in ("decode", "all"):
        raise ScheduleError("not a schedule: pattern or lag_phase is missing")
    return ReuseSchedule(
        computes=tuple(letter == "F" for letter in pattern),
        source=_integers(facts, "source"),
        lag_phase="all" if phase == "all" else "decode",
        layer_ids=_integers(facts, "layer_ids"),
    )


def _integers(facts: JsonObject, name: str) -> tuple[int, ...]:
    values = as_list(facts.get(name))
    if not values or not all(isinstance(value, int) for value in values):
        raise ScheduleError(f"not a schedule: {name} is not a list of whole numbers")
    return tuple(value for value in values if isinstance(value, int))


def read_schedule(directory: Path) -> ReuseSchedule:
    """The schedule that the indexers of a directory were trained for.

    Raises:
        IndexerFileError: there is none.
    """
    try:
        return schedule_from(as_object(_facts(directory).get("schedule")))
    except ScheduleError as error:
        raise IndexerFileError(f"{directory / SCHEDULE_FILE}: {error}") from None


def indexer_facts(directory: Path) -> IndexerFacts:
    """What identifies an indexer directory: hash of the tensors, schedule, base model.

    Raises:
        IndexerFileError: files are missing or do not belong together.
    """
    facts = _facts(directory)
    sha256, expected = file_sha256(directory / INDEXER_FILE), str(facts.get("indexer_sha256"))
    if sha256 != expected:
        raise IndexerFileError(
            f"{directory / INDEXER_FILE}: its content is not what {SCHEDULE_FILE} was written for"
            f" (sha256 {sha256[:12]}, expected {expected[:12]})"
        )
    return {
        "indexer_sha256": sha256,
        "indexer_schedule": str(read_schedule(directory)),
        "indexer_base": as_object(facts.get("base")),
    }


def _facts(directory: Path) -> JsonObject:
    """schedule.json of an indexer directory."""
    path = directory / SCHEDULE_FILE
    for file in (directory / INDEXER_FILE, path):
        if not file.is_file():
            raise IndexerFileError(f"{file}: no such file; is this an indexer directory?")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise IndexerFileError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(facts, dict):
        raise IndexerFileError(f"{path}: not a JSON object")
    if facts.get("format") != FORMAT:
        raise IndexerFileError(f"{path}: format {facts.get('format')!r}, this version reads 1")
    return facts
