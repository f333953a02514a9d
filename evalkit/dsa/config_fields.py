"""Fields of a model's config.json, checked as they are read. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence

from evalkit.dsa.json_types import JsonObject, JsonValue, as_object
from evalkit.dsa.schedule import ScheduleError


def text_config(config: JsonObject) -> JsonObject:
    """The configuration of the language model; of a multimodal model its `text_config`."""
    return as_object(config.get("text_config")) or config


def override_fields(overrides: JsonObject) -> JsonObject:
    """Overrides of the language model's fields, written in `text_config` or beside it."""
    return {**overrides, **as_object(overrides.get("text_config"))}


def integer(config: JsonObject, name: str) -> int | None:
    """A whole number; None where the field is absent or null.

    Raises:
        ScheduleError: it is something else.
    """
    value = config.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ScheduleError(f"{name} = {value!r} in the configuration: it must be a whole number")


def entries(config: JsonObject, name: str) -> Sequence[JsonValue]:
    """A list; empty where the field is absent or null.

    Raises:
        ScheduleError: it is something else.
    """
    value = config.get(name)
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return value
    raise ScheduleError(f"{name} = {value!r} in the configuration: it must be a list")
