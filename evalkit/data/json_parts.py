"""A JSON file of any size: one pass says where its values are, and each is read on its own."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField, kind
from evalkit.data.records import MAX_LINE, decoded
from evalkit.dsa.json_types import JsonValue

# Strings as a whole, so that brackets inside them do not count; nothing is ever tried twice.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


class Part(NamedTuple):
    """Where an object or list begins and ends, in bytes."""

    start: int
    stop: int


Members = Mapping[str, "JsonValue | Part"] | Sequence["JsonValue | Part"]
"""An object or list whose own objects and lists are told by their places."""


def outline(data: mmap.mmap, part: Part | None = None) -> Members:
    """The members of an object or list; those that are objects or lists are not looked into.

    Args:
        data: of a file.
        part: the object or list; None: what the file holds.

    Raises:
        BadField: it is no whole JSON object or list, or has too much in it besides others.
    """
    start, stop = part or (0, len(data))
    gaps: list[bytes] = []
    parts: list[Part] = []
    size, end = 0, start
    for depth, begin, after in _bracketed(data, start, stop):
        size += (begin if depth else stop) - end
        if size > MAX_LINE:
            raise BadField("", f"more than {MAX_LINE} bytes outside objects and lists")
        if depth == 0:
            gaps.append(data[end:stop])
            break
        gaps.append(data[end:begin] + b"[%d]" % len(parts))
        parts.append(Part(begin, after))
        end = after
    value = decoded(b"".join(gaps) or data[start : min(stop, start + MAX_LINE)])
    if isinstance(value, dict):
        return {key: _member(member, parts) for key, member in value.items()}
    if isinstance(value, list):
        return [_member(member, parts) for member in value]
    raise BadField("", f"{kind(value)}, not an object or a list")


def _member(member: JsonValue, parts: Sequence[Part]) -> JsonValue | Part:
    """In the outline, a list is the number of a part."""
    return parts[int(str(member[0]))] if isinstance(member, list) else member


def _bracketed(data: mmap.mmap, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Depth, begin and end of the bracketed values at depths 0 and 1, as they end."""
    depth, starts = 0, [0, 0]
    for token in _TOKEN.finditer(data, start, stop):
        mark = token[0]
        if mark in (b"[", b"{"):
            if depth < 2:
                starts[depth] = token.start()
            depth += 1
        elif mark in (b"]", b"}") and depth:
            depth -= 1
            if depth < 2:
                yield depth, starts[depth], token.end()


def mapped(path: Path) -> mmap.mmap:
    """The bytes of a file, of which only what is touched is read; to be closed, as by ``with``.

    Raises:
        EvalkitError: it cannot be read, or is empty.
    """
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise EvalkitError(f"{path}: empty") from None
