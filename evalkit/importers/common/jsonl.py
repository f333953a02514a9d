"""JSON lines of unknown quality: no line stops the reading, and none fills the memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField, kind
from evalkit.data.records import MAX_LINE, SourceLocation, decoded, numbered_lines
from evalkit.importers.common.predictions import FieldReader, PredictionSet, UnusableLine


def rows(path: Path, name: str, predictions: PredictionSet) -> Iterator[FieldReader | UnusableLine]:
    """The objects of a file, and the lines that are none (noted as problems).

    Args:
        path: the file.
        name: how it is called in messages.
        predictions: takes note of the problems.

    Raises:
        EvalkitError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line, length in numbered_lines(file):
                where = SourceLocation(name, number)
                if length > MAX_LINE:
                    text = f"a line of {length} bytes, more than {MAX_LINE}"
                    yield left_out(where, "", text, predictions)
                elif line.strip():
                    yield record(line, where, predictions)
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None


def whole(path: Path, name: str, predictions: PredictionSet) -> FieldReader | UnusableLine:
    """The one object of a JSON file; what is none is noted as a problem.

    Raises:
        EvalkitError: the file cannot be read.
    """
    where = SourceLocation(name)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_LINE + 1)
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_LINE:
        return left_out(where, "", f"more than {MAX_LINE} bytes", predictions)
    return record(content, where, predictions)


def record(
    content: bytes, where: SourceLocation, predictions: PredictionSet, inside: str = ""
) -> FieldReader | UnusableLine:
    """The object that some bytes are; what is none is noted as a problem.

    Args:
        content: JSON.
        where: file and line.
        predictions: takes note of the problem.
        inside: name of the object in its file, if it is not the whole of it.
    """
    try:
        data = decoded(content)
        if not isinstance(data, dict):
            raise BadField("", f"{kind(data)}, not an object")
    except BadField as error:
        return left_out(where, inside, error.message, predictions)
    digest = hashlib.sha256(content.strip()).hexdigest()
    return FieldReader(data, where, predictions, inside, digest)


def left_out(
    where: SourceLocation, name: str, message: str, predictions: PredictionSet
) -> UnusableLine:
    """A line without a usable record, noted as a problem."""
    predictions.problem(where, name, f"{message}; left out")
    return UnusableLine(where)
