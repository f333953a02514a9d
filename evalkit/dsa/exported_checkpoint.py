"""The schedule.json of a whole checkpoint with trained indexers in it. Standard library only.

Not every class that loads such a checkpoint can be told its schedule by config.json, so
schedule.json says it, bound by hashes to the trained tensors and to config.json: who loads the
directory sees whether they still belong together.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path

from evalkit.dsa.indexer_metadata import (
    FORMAT,
    SCHEDULE_FILE,
    IndexerFileError,
    config_sha256,
    read_facts,
    schedule_facts,
    schedule_from,
    sealed,
)
from evalkit.dsa.json_types import JsonObject, JsonValue, as_object
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

_WEIGHTS = "*.safetensors"


def export_facts(
    directory: Path, schedule: ReuseSchedule, tensors: Iterable[str], base: JsonObject
) -> dict[str, JsonValue]:
    """The content of schedule.json for a checkpoint that is written but for that file.

    Args:
        directory: with weights and config.json.
        schedule: what the indexers in it serve.
        tensors: names of the trained tensors in the files, block scales included.
        base: facts of the model that it was made of.
    """
    return sealed(
        {
            "format": FORMAT,
            "schedule": schedule_facts(schedule),
            "tensors_sha256": dict(_hashes(directory, sorted(tensors))),
            "config_sha256": config_sha256(directory / "config.json"),
            "base": dict(base),
        }
    )


def exported_schedule(directory: Path) -> ReuseSchedule | None:
    """The schedule that a checkpoint's indexers serve; None for any other directory.

    Raises:
        IndexerFileError: schedule.json, config.json or a trained tensor was changed since.
    """
    path = directory / SCHEDULE_FILE
    if not path.is_file() or not (directory / "config.json").is_file():
        return None
    facts = read_facts(path)
    hashes = as_object(facts.get("tensors_sha256"))
    if not hashes:
        return None
    if config_sha256(directory / "config.json") != facts.get("config_sha256"):
        raise IndexerFileError(
            f"{directory / 'config.json'}: not what {SCHEDULE_FILE} was written for; export again"
        )
    for name, sha256 in _hashes(directory, hashes).items():
        if sha256 != hashes[name]:
            raise IndexerFileError(
                f"{directory}: {name} is not what {SCHEDULE_FILE} was written for; export again"
            )
    try:
        return schedule_from(as_object(facts.get("schedule")))
    except ScheduleError as error:
        raise IndexerFileError(f"{path}: {error}") from None


def _hashes(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """sha256 of the bytes of some tensors; empty where there is no such tensor."""
    hashes = dict.fromkeys(names, "")
    for path in sorted(directory.glob(_WEIGHTS)):
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(length))
                for name in hashes.keys() & header.keys():
                    start, end = header[name]["data_offsets"]
                    file.seek(8 + length + start)
                    hashes[name] = hashlib.sha256(file.read(end - start)).hexdigest()
        except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise IndexerFileError(f"{path}: not a safetensors file: {error}") from None
    return hashes
