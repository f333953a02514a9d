"""JSON lines of unknown quality: no line stops the reading, and none fills the memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from evalkit.core.errors import EvalkitError
from evalkit.data.records import MAX_LINE, BadField, decoded, kind
from evalkit.importers.common.records import Reading, Row, Where


def rows(path: Path, name: str, reading: Reading) -> Iterator[Row | Where]:
    """The objects of a file, and the places of lines that are none (noted as problems).

    Args:
        path: the file.
        name: how it is called in messages.
        reading: takes note of the problems.

    Raises:
        EvalkitError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line, length in _lines(file):
                where = Where(name, number)
                if length > MAX_LINE:
                    text = f"a line of {length} bytes, more than {MAX_LINE}; left out"
                    reading.problem(where, "", text)
                    yield where
                elif line.strip():
                    data = parsed(line, where, reading)
                    digest = hashlib.sha256(line.strip()).hexdigest()
                    yield where if data is None else Row(data, where, reading, digest=digest)
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None


def whole(path: Path, name: str, reading: Reading) -> Row | Where:
    """The one object of a JSON file, or its place (noted as a problem).

    Raises:
        EvalkitError: the file cannot be read.
    """
    where = Where(name)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_LINE + 1)
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_LINE:
        reading.problem(where, "", f"more than {MAX_LINE} bytes; left out")
        return where
    data = parsed(content, where, reading)
    digest = hashlib.sha256(content.strip()).hexdigest()
    return where if data is None else Row(data, where, reading, digest=digest)


def parsed(line: bytes, where: Where, reading: Reading) -> dict[str, Any] | None:
    """An object, or None with a problem noted."""
    try:
        data = decoded(line)
    except BadField as error:
        reading.problem(where, "", f"{error.message}; left out")
        return None
    if not isinstance(data, dict):
        reading.problem(where, "", f"{kind(data)}, not an object; left out")
        return None
    return data


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes, int]]:
    """Number, content (nothing for a line that is too long) and length in bytes."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        length = len(line)
        if length > MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(2**20)
                length += len(line)
            line = b""
        yield number, line, length
