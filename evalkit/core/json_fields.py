"""Fields of JSON objects that may be damaged or foreign, read with a check of their type.

Null and absent are one thing to the optional readers and an error to the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from evalkit.dsa.json_types import JsonObject, JsonValue

T = TypeVar("T")


class BadField(Exception):  # noqa: N818 - readers add file and line and raise EvalkitError
    """A field that is not what it must be.

    Attributes:
        field: its path, such as ``arms[2].schedule``; ``""`` for the object as a whole.
        message: what is wrong with it.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field, self.message = field, message


def kind(value: object) -> str:
    """The type of a JSON value in words."""
    if isinstance(value, bool):
        return "true or false"
    kinds = ((str, "text"), (int, "a number"), (float, "a number"), (list, "a list"))
    words = next((word for type_, word in kinds if isinstance(value, type_)), "an object")
    return "null" if value is None else words


def present(data: JsonObject, field: str) -> JsonValue:
    """Whatever a field holds; raises BadField where it is missing or null."""
    value = data.get(field)
    if value is None:
        raise BadField(field, "null" if field in data else "missing")
    return value


def text(data: JsonObject, field: str) -> str:
    """A field that must hold text."""
    value = present(data, field)
    if not isinstance(value, str):
        raise BadField(field, f"{kind(value)}, not text")
    return value


def optional_text(data: JsonObject, field: str) -> str | None:
    """Text, or None."""
    return None if data.get(field) is None else text(data, field)


def integer(data: JsonObject, field: str) -> int:
    """A field that must hold a whole number."""
    value = present(data, field)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadField(field, f"{kind(value)}, not a whole number")
    return value


def optional_integer(data: JsonObject, field: str) -> int | None:
    """A whole number, or None."""
    return None if data.get(field) is None else integer(data, field)


def number(data: JsonObject, field: str) -> float:
    """A field that must hold a number."""
    value = present(data, field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadField(field, f"{kind(value)}, not a number")
    return value


def optional_number(data: JsonObject, field: str) -> float | None:
    """A number, or None."""
    return None if data.get(field) is None else number(data, field)


def entries(data: JsonObject, field: str) -> list[JsonValue]:
    """A field that must hold a list."""
    value = present(data, field)
    if not isinstance(value, list):
        raise BadField(field, f"{kind(value)}, not a list")
    return value


def each(data: JsonObject, field: str, read: Callable[[JsonObject, str], T]) -> tuple[T, ...]:
    """The entries of a list, each read under its own path."""
    values = entries(data, field)
    if not values:
        return ()
    paths = ((f"{field}[{i}]", value) for i, value in enumerate(values))
    return tuple(read({path: value}, path) for path, value in paths)


def integers(data: JsonObject, field: str) -> tuple[int, ...]:
    """A list of whole numbers."""
    return each(data, field, integer)


def numbers(data: JsonObject, field: str) -> tuple[float, ...]:
    """A list of numbers."""
    return each(data, field, number)


def texts(data: JsonObject, field: str) -> tuple[str, ...]:
    """A list of texts."""
    return each(data, field, text)


def fields(data: JsonObject, field: str) -> JsonObject:
    """A field that must hold an object."""
    value = present(data, field)
    if not isinstance(value, dict):
        raise BadField(field, f"{kind(value)}, not an object")
    return value


def optional_fields(data: JsonObject, field: str) -> JsonObject:
    """An object; empty where there is none."""
    return {} if data.get(field) is None else fields(data, field)


def by_name(data: JsonObject, field: str, read: Callable[[JsonObject, str], T]) -> dict[str, T]:
    """The values of an object, each read under its own path; empty where there is none."""
    values = optional_fields(data, field)
    return {name: read({f"{field}.{name}": values[name]}, f"{field}.{name}") for name in values}


def parsed(data: JsonObject, field: str, parse: Callable[[JsonObject], T]) -> T:
    """A field that must hold an object, made into a record; errors have its path."""
    inside = fields(data, field)
    try:
        return parse(inside)
    except BadField as error:
        raise BadField(f"{field}.{error.field}", error.message) from None


def optional_parsed(data: JsonObject, field: str, parse: Callable[[JsonObject], T]) -> T | None:
    """As `parsed`; None where the field is absent, null or an empty object."""
    return None if data.get(field) in (None, {}) else parsed(data, field, parse)


def all_parsed(data: JsonObject, field: str, parse: Callable[[JsonObject], T]) -> tuple[T, ...]:
    """A list of objects, each made into a record; errors have its path."""
    return each(data, field, lambda entry, path: parsed(entry, path, parse))
