"""Record files that survive a kill: atomic writes, appended JSON lines, torn last lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.dsa.files import replacing


def dumps(row: Mapping[str, Any]) -> str:
    """One JSON line; lone surrogates are escaped so that any completion can be written."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(row, ensure_ascii=True, separators=(",", ":"))
    return text


def read_jsonl(path: Path, fields: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Every whole line of a record file; a torn last line (a kill while writing) is left out.

    Args:
        path: of the file; one that is not there has no lines.
        fields: what every row has besides its sample_id, with the types.

    Raises:
        EvalkitError: a line in the middle is damaged; names file and line.
    """
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror}") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise EvalkitError(f"{path}:{number}: not JSON") from None
        if not isinstance(row, dict) or not isinstance(row.get("sample_id"), str):
            raise EvalkitError(f"{path}:{number}: no sample_id")
        for key, type_ in (fields or {}).items():
            if key not in row or not isinstance(row[key], type_) or isinstance(row[key], bool):
                raise EvalkitError(f"{path}:{number}: no usable {key}")
        rows.append(row)
    return rows


def json_rows(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a log; a torn last line is left out, and no file has no lines.

    Raises:
        EvalkitError: a line in the middle is damaged; names file and line.
    """
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    rows = []
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


def append_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append lines and sync them; a torn last line is cut off first."""
    data = "".join(dumps(row) + "\n" for row in rows).encode()
    if not data:
        return
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as handle:
            _cut_torn_line(handle)
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())


def _cut_torn_line(handle: Any) -> None:
    """Truncate a file after its last newline."""
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


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that readers see the old or the new one, never half of it."""
    with writing(path), replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk, a missing permission or a file in the way is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise EvalkitError(
            f"{path}: cannot be written: {error.strerror or error}; what was written before stays"
        ) from None
