"""Metadata of an indexer directory: schedule, hash, base model. Standard library only.

`evalkit.dsa.indexer_checkpoint` writes such directories and puts their tensors into models.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TypedDict

from evalkit.dsa.files import file_sha256
from evalkit.dsa.json_types import JsonObject, JsonValue, as_list, as_object
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

INDEXER_FILE = "indexer.safetensors"
SCHEDULE_FILE = "schedule.json"
FORMAT = 1
_SEAL = "facts_sha256"
# Fields of a config.json that change with the library that wrote it, not with the model.
_VOLATILE = ("transformers_version", "_name_or_path")


class IndexerFileError(ValueError):
    """An indexer directory that cannot be used; the message names file and tensor."""


class IndexerFacts(TypedDict):
    """What identifies the indexers of a directory, for the records of runs that use them."""

    indexer_sha256: str
    indexer_schedule: str
    indexer_base: JsonObject


def sealed(facts: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Facts with a checksum over all of them, which `read_facts` compares."""
    return facts | {_SEAL: _checksum(facts)}


def config_sha256(path: Path) -> str:
    """sha256 of what a config.json says, whatever its spacing and order.

    Raises:
        IndexerFileError: it cannot be read.
    """
    return _checksum({k: v for k, v in _object(path).items() if k not in _VOLATILE})


def _checksum(facts: JsonObject) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


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
    return read_facts(path)


def read_facts(path: Path) -> JsonObject:
    """A schedule.json, checked against its own checksum; those of 0.1 have none.

    Raises:
        IndexerFileError: it cannot be read, or was edited.
    """
    facts = _object(path)
    if facts.get("format") != FORMAT:
        raise IndexerFileError(f"{path}: format {facts.get('format')!r}, this version reads 1")
    seal = facts.get(_SEAL)
    if seal is not None and seal != _checksum({k: v for k, v in facts.items() if k != _SEAL}):
        raise IndexerFileError(f"{path}: edited after it was written; its indexers serve another")
    return facts


def _object(path: Path) -> JsonObject:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IndexerFileError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(facts, dict):
        raise IndexerFileError(f"{path}: not a JSON object")
    return facts
