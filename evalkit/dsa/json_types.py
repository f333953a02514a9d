"""JSON values as types, and how parts of a parsed document are taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
)
JsonObject: TypeAlias = Mapping[str, JsonValue]


def as_object(value: JsonValue) -> JsonObject:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: JsonValue) -> Sequence[JsonValue]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()
