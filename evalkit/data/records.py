"""Records of a data set, each with the checks that name file, line and field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from evalkit.core.errors import EvalkitError

MAX_LINE = 32 * 2**20
"""Bytes of one record at most; the longest real ones have about four million."""

_SURROGATE = re.compile("[\ud800-\udfff]")

T = TypeVar("T")


class Lines(Protocol):
    """The part of a binary stream that is used."""

    def readline(self, limit: int = -1, /) -> bytes:
        """The next line, or its first `limit` bytes."""
        ...


class BadField(Exception):  # noqa: N818 - becomes a Problem, never leaves the loader
    """A field that is not what it must be."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field, self.message = field, message


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one record.

    Attributes:
        file: as it is called in messages.
        line: 1-based line or, in a JSON array, record.
        field: name of the field, empty for the record as a whole.
        message: what is wrong.
    """

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.file}:{self.line}: {field}{self.message}"


def read_lines(
    stream: Lines, file: str, parse: Callable[[Mapping[str, Any]], T]
) -> tuple[list[tuple[int, T]], list[Problem]]:
    """Every record of a JSON-lines stream, and what is wrong with the others.

    Args:
        stream: of bytes; a line of any length takes bounded memory.
        file: named in problems.
        parse: makes a record of an object, or raises BadField.

    Returns:
        Line numbers with records, and problems.
    """
    records, problems = [], []
    for number, line in _numbered(stream):
        if line is None:
            problems.append(Problem(file, number, "", f"longer than {MAX_LINE} bytes"))
        elif line.strip():
            found = parsed(line, file, number, parse)
            if isinstance(found, Problem):
                problems.append(found)
            else:
                records.append((number, found))
    return records, problems


def parsed(
    text: bytes, file: str, number: int, parse: Callable[[Mapping[str, Any]], T]
) -> T | Problem:
    """One record from its JSON, or what is wrong with it."""
    try:
        data = decoded(text)
        if not isinstance(data, dict):
            raise BadField("", f"{kind(data)}, not an object")
        return parse(data)
    except BadField as error:
        return Problem(file, number, error.field, error.message)


def decoded(text: bytes) -> Any:
    """Any JSON value; raises BadField (for the record as a whole)."""
    try:
        return json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        message = f"not UTF-8 (byte {error.start})"
    except json.JSONDecodeError as error:
        message = f"not JSON ({error.msg} at character {error.pos})"
    except RecursionError:
        message = "not JSON (nested too deeply)"
    except ValueError:
        message = "not JSON (a number with too many digits)"
    raise BadField("", message)


def refuse(problems: Sequence[Problem]) -> None:
    """Raise EvalkitError naming the first problem and where the others are."""
    if problems:
        others = [f"{p.line}{f' {p.field}' if p.field else ''}" for p in problems[1:6]]
        more = f"; {len(problems) - 1} more: {', '.join(others)}" if others else ""
        raise EvalkitError(f"{problems[0]}{more}{' …' if len(problems) > 6 else ''}")


def _numbered(stream: Lines) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; None for one that is too long."""
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) <= MAX_LINE:
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(2**20)
        yield number, None


def text(data: Mapping[str, Any], field: str, *, empty: bool = True) -> str:
    """A field that must hold text; raises BadField."""
    value = _text(_value(data, field), field)
    if not empty and not value.strip():
        raise BadField(field, "empty")
    return value


def texts(data: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """A field that must hold a list of texts, one at least; raises BadField."""
    values = _value(data, field)
    if not isinstance(values, list):
        raise BadField(field, f"{kind(values)}, not a list of texts")
    if not values:
        raise BadField(field, "an empty list")
    return tuple(_text(value, f"{field}[{i}]") for i, value in enumerate(values))


def optional_texts(data: Mapping[str, Any], field: str) -> tuple[str, ...] | None:
    """As `texts`; None where the field is null; it must be there."""
    if field in data and data[field] is None:
        return None
    return texts(data, field)


def integer(data: Mapping[str, Any], field: str) -> int:
    """A field that must hold a whole number, 0 at least; raises BadField."""
    value = _value(data, field)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadField(field, f"{kind(value)}, not a whole number")
    if value < 0:
        raise BadField(field, "negative")
    return value


def one_of(data: Mapping[str, Any], field: str, choices: Sequence[str]) -> str:
    """A field that must hold one of some texts; raises BadField."""
    value = text(data, field)
    if value not in choices:
        raise BadField(field, f"{value[:40]!r}, not one of {', '.join(choices)}")
    return value


def _value(data: Mapping[str, Any], field: str) -> Any:
    if field not in data:
        raise BadField(field, "missing")
    if data[field] is None:
        raise BadField(field, "null")
    return data[field]


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise BadField(field, f"{kind(value)}, not text")
    if (match := _SURROGATE.search(value)) is not None:
        code = ord(match[0])
        raise BadField(field, f"a lone surrogate (U+{code:04X}) at character {match.start()}")
    return value


def kind(value: object) -> str:
    """The type of a JSON value in words."""
    if isinstance(value, bool):
        return "true or false"
    kinds = ((str, "text"), (int, "a number"), (float, "a number"), (list, "a list"))
    words = next((word for type_, word in kinds if isinstance(value, type_)), "an object")
    return "null" if value is None else words
