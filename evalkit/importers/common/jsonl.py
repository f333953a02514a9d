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
                    text = f"a line of {length} bytes, more than {MAX_LINE}; left out"
                    predictions.problem(where, "", text)
                    yield UnusableLine(where)
                elif line.strip():
                    yield _row(line, where, predictions)
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
        predictions.problem(where, "", f"more than {MAX_LINE} bytes; left out")
        return UnusableLine(where)
    return _row(content, where, predictions)


def _row(
    content: bytes, where: SourceLocation, predictions: PredictionSet
) -> FieldReader | UnusableLine:
    try:
        data = decoded(content)
        if not isinstance(data, dict):
            raise BadField("", f"{kind(data)}, not an object")
    except BadField as error:
        predictions.problem(where, "", f"{error.message}; left out")
        return UnusableLine(where)
    digest = hashlib.sha256(content.strip()).hexdigest()
    return FieldReader(data, where, predictions, digest=digest)
