"""What an indexer directory says of itself: schedule, hash, base model. Standard library only.

`evalkit.dsa.indexer_checkpoint` writes such directories and puts their tensors into models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.dsa.files import file_sha256
from evalkit.dsa.schedule import LagPhase, ReuseSchedule, ScheduleError

INDEXER_FILE = "indexer.safetensors"
SCHEDULE_FILE = "schedule.json"
FORMAT = 1


class IndexerFileError(ValueError):
    """An indexer directory that cannot be used; the message names file and tensor."""


def schedule_facts(schedule: ReuseSchedule) -> dict[str, Any]:
    """A schedule as JSON values; `schedule_from` is the inverse."""
    return {
        "text": str(schedule),
        "pattern": schedule.pattern,
        "source": list(schedule.source),
        "lag_phase": schedule.lag_phase,
        "layer_ids": list(schedule.layer_ids),
    }


def schedule_from(facts: Mapping[str, Any]) -> ReuseSchedule:
    """The schedule of `schedule_facts`.

    Raises:
        ScheduleError: not a schedule.
    """
    try:
        phase: LagPhase = facts["lag_phase"]
        return ReuseSchedule(
            computes=tuple(letter == "F" for letter in facts["pattern"]),
            source=tuple(int(s) for s in facts["source"]),
            lag_phase=phase,
            layer_ids=tuple(int(i) for i in facts["layer_ids"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ScheduleError(f"not a schedule: {error}") from None


def read_schedule(directory: Path) -> ReuseSchedule:
    """The schedule that the indexers of a directory were trained for.

    Raises:
        IndexerFileError: there is none.
    """
    try:
        return schedule_from(_facts(directory)["schedule"])
    except (KeyError, ScheduleError) as error:
        raise IndexerFileError(f"{directory / SCHEDULE_FILE}: {error}") from None


def indexer_facts(directory: Path) -> dict[str, Any]:
    """What identifies an indexer directory: hash of the tensors, schedule, base model.

    Raises:
        IndexerFileError: files are missing or do not belong together.
    """
    facts = _facts(directory)
    found = file_sha256(directory / INDEXER_FILE)
    if found != facts.get("indexer_sha256"):
        raise IndexerFileError(
            f"{directory / INDEXER_FILE}: its content is not what {SCHEDULE_FILE} was written for"
            f" (sha256 {found[:12]}, expected {str(facts.get('indexer_sha256'))[:12]})"
        )
    return {
        "indexer_sha256": found,
        "indexer_schedule": str(read_schedule(directory)),
        "indexer_base": facts.get("base", {}),
    }


def _facts(directory: Path) -> dict[str, Any]:
    path = directory / SCHEDULE_FILE
    if not (directory / INDEXER_FILE).is_file() or not path.is_file():
        missing = path if (directory / INDEXER_FILE).is_file() else directory / INDEXER_FILE
        raise IndexerFileError(f"{missing}: no such file; is this an indexer directory?")
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise IndexerFileError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise IndexerFileError(f"{path}: format {facts.get('format')!r}, this version reads 1")
    return facts
