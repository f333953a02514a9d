"""Records of a data set, each with the checks that name file, line and field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from evalkit.core import json_fields
from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField, kind
from evalkit.dsa.json_types import JsonObject, JsonValue

MAX_LINE = 32 * 2**20
"""Bytes of one record at most; the longest real ones have about four million."""

_SURROGATE = re.compile("[\ud800-\udfff]")

T = TypeVar("T")


class LineStream(Protocol):
    """The part of a binary stream that is used."""

    def readline(self, limit: int = -1, /) -> bytes:
        """The next line, or its first `limit` bytes."""
        ...


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of a file that was read.

    Attributes:
        file: as it is called in messages.
        line: 1-based line or, in a JSON array, record; 0 for the file as a whole.
    """

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one record.

    Attributes:
        where: file and line.
        field: name of the field, empty for the record as a whole.
        message: what is wrong, and what was done about it.
    """

    where: SourceLocation
    field: str
    message: str

    def __str__(self) -> str:
        parts = (part for part in (str(self.where), self.field, self.message) if part)
        return ": ".join(parts).replace("\n", "\\n")  # a key of the file may hold one: one line


def read_lines(
    stream: LineStream, file: str, parse: Callable[[JsonObject], T]
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
    for number, line, length in numbered_lines(stream):
        where = SourceLocation(file, number)
        if length > MAX_LINE:
            problems.append(Problem(where, "", f"longer than {MAX_LINE} bytes"))
        elif line.strip():
            record = parsed(line, where, parse)
            if isinstance(record, Problem):
                problems.append(record)
            else:
                records.append((number, record))
    return records, problems


def parsed(text: bytes, where: SourceLocation, parse: Callable[[JsonObject], T]) -> T | Problem:
    """One record from its JSON, or what is wrong with it."""
    try:
        data = decoded(text)
        if not isinstance(data, dict):
            raise BadField("", f"{kind(data)}, not an object")
        return parse(data)
    except BadField as error:
        return Problem(where, error.field, error.message)


def decoded(text: bytes) -> JsonValue:
    """Any JSON value; raises BadField (for the record as a whole)."""
    try:
        value: JsonValue = json.loads(text.decode("utf-8-sig"))
        return value
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
        others = [f"{p.where.line} {p.field}".strip() for p in problems[1:6]]
        more = f"; {len(problems) - 1} more: {', '.join(others)}" if others else ""
        raise EvalkitError(f"{problems[0]}{more}{' …' if len(problems) > 6 else ''}")


def numbered_lines(stream: LineStream) -> Iterator[tuple[int, bytes, int]]:
    """Number, content (nothing for a line that is longer than `MAX_LINE`) and length in bytes."""
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        length = len(line)
        if length > MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = stream.readline(2**20)
                length += len(line)
            line = b""
        yield number, line, length


def text(data: JsonObject, field: str, *, empty: bool = True) -> str:
    """A field that must hold text; raises BadField."""
    value = _text(json_fields.present(data, field), field)
    if not empty and not value.strip():
        raise BadField(field, "empty")
    return value


def texts(data: JsonObject, field: str) -> tuple[str, ...]:
    """A field that must hold a list of texts, one at least; raises BadField."""
    values = json_fields.present(data, field)
    if not isinstance(values, list):
        raise BadField(field, f"{kind(values)}, not a list of texts")
    if not values:
        raise BadField(field, "an empty list")
    return tuple(_text(value, f"{field}[{i}]") for i, value in enumerate(values))


def optional_texts(data: JsonObject, field: str) -> tuple[str, ...] | None:
    """As `texts`; None where the field is null; it must be there."""
    if field in data and data[field] is None:
        return None
    return texts(data, field)


def integer(data: JsonObject, field: str) -> int:
    """A field that must hold a whole number, 0 at least; raises BadField."""
    value = json_fields.present(data, field)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadField(field, f"{kind(value)}, not a whole number")
    if value < 0:
        raise BadField(field, "negative")
    return value


def one_of(data: JsonObject, field: str, choices: Sequence[str]) -> str:
    """A field that must hold one of some texts; raises BadField."""
    value = text(data, field)
    if value not in choices:
        raise BadField(field, f"{value[:40]!r}, not one of {', '.join(choices)}")
    return value


def _text(value: JsonValue, field: str) -> str:
    if not isinstance(value, str):
        raise BadField(field, f"{kind(value)}, not text")
    if (match := _SURROGATE.search(value)) is not None:
        code = ord(match[0])
        raise BadField(field, f"a lone surrogate (U+{code:04X}) at character {match.start()}")
    return value
