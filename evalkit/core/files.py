"""Record files that survive a kill: atomic writes, appended JSON lines, torn last lines.

No secret that this process was told is written (`evalkit.core.secrets`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.core.secrets import redact, redact_strings
from evalkit.dsa.files import replacing
from evalkit.dsa.json_types import JsonObject, JsonValue

T = TypeVar("T")


def dumps(row: JsonObject) -> str:
    """One JSON line; lone surrogates are escaped so that any completion can be written."""
    return _redacted(row, separators=(",", ":"))


def _redacted(data: JsonObject, **options: Any) -> str:
    """JSON without secrets, that UTF-8 can hold; value by value: a secret may look like a name."""
    data = {key: redact_strings(value) for key, value in data.items()}
    text = json.dumps(data, ensure_ascii=False, **options)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(data, **options)
    return text


def read_jsonl(path: Path, parse: Callable[[JsonObject], T]) -> list[T]:
    """Every whole line of a record file; a torn last line (a kill while writing) is left out.

    Args:
        path: of the file; one that is not there has no lines.
        parse: makes a record of an object, or raises BadField.

    Raises:
        EvalkitError: a line in the middle is damaged; names file, line and field.
    """
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise EvalkitError(f"{path}:{number}: not JSON") from None
        try:
            records.append(parse(row if isinstance(row, dict) else {}))
        except BadField as error:
            raise EvalkitError(f"{path}:{number}: no usable {error.field}") from None
    return records


def json_rows(path: Path) -> list[dict[str, JsonValue]]:
    """Every whole line of a log; a torn last line is left out, and no file has no lines.

    Raises:
        EvalkitError: a line in the middle is damaged; names file and line.
    """
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    rows: list[dict[str, JsonValue]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise EvalkitError(f"{path}:{number}: damaged: remove the line to go on")
        rows.append(row)
    return rows


def append_jsonl(path: Path, rows: Iterable[JsonObject]) -> None:
    """Append lines and sync them; a torn last line is cut off first."""
    data = "".join(dumps(row) + "\n" for row in rows).encode()
    if not data:
        return
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as handle:
            cut_torn_line(handle)
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())


def cut_torn_line(handle: BinaryIO) -> None:
    """Truncate a file that is open for writing after its last newline."""
    size = end = handle.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        handle.seek(start)
        at = handle.read(end - start).rfind(b"\n")
        if at >= 0:
            if start + at + 1 != size:
                handle.truncate(start + at + 1)
            return
        end = start
    handle.truncate(0)


def write_jsonl(path: Path, rows: Iterable[JsonObject]) -> None:
    """Replace a record file atomically."""
    write_atomic(path, "".join(dumps(row) + "\n" for row in rows))


def read_object(path: Path) -> JsonObject:
    """The one object of a JSON file.

    Raises:
        FileNotFoundError: there is none.
        EvalkitError: it cannot be read, or holds something else.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (ValueError, OSError, RecursionError) as error:
        raise EvalkitError(f"{path}: damaged: {error}") from None
    if not isinstance(data, dict):
        raise EvalkitError(f"{path}: damaged: not a JSON object")
    return data


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that readers see the old or the new one, never half of it."""
    _replace(path, redact(text))


def write_object(path: Path, data: JsonObject, *, allow_nan: bool = False) -> None:
    """Write one JSON object as `write_atomic` writes a text.

    Raises:
        ValueError: it holds nan or an infinite number, and those are not allowed.
    """
    _replace(path, _redacted(data, indent=1, allow_nan=allow_nan) + "\n")


def _replace(path: Path, text: str) -> None:
    with writing(path), replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk, a missing permission or a file in the way is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise EvalkitError(
            f"{path}: cannot be written: {error.strerror or error}; what was written before stays"
        ) from None
