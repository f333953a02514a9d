"""Rows of a user's own file: JSON lines, CSV, Parquet, or a data set that `datasets` can load."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.data.cache import is_offline, sha256
from evalkit.data.records import MAX_LINE, Problem, SourceLocation, read_lines
from evalkit.dsa.json_types import JsonObject

SUFFIXES = (".jsonl", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by field.

    Attributes:
        where: its name in messages.
        sha256: of the file, or of the rows of a data set.
        rows: the line (row of a Parquet file or data set, from 1 on) and the fields of each.
        problems: of the lines that are no row.
    """

    where: str
    sha256: str
    rows: tuple[tuple[int, JsonObject], ...]
    problems: tuple[Problem, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field that some row has."""
        return tuple(dict.fromkeys(name for _, row in self.rows for name in row))


def read_table(path: Path) -> Table:
    """The rows of a file, by its suffix; the last few files are kept in memory.

    Raises:
        EvalkitError: it cannot be read, or its suffix is none of `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise EvalkitError(f"{path}: a table is a file {', '.join(SUFFIXES)}")
    try:
        stat = path.stat()
        return _read(path, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def _read(path: Path, _size: int, _mtime: int) -> Table:
    suffix, problems = path.suffix.lower(), list[Problem]()
    rows: Iterable[tuple[int, JsonObject]]
    if suffix == ".jsonl":
        with path.open("rb") as stream:
            rows, problems = read_lines(stream, str(path), lambda row: row)
    elif suffix == ".csv":
        rows, problems = _csv(path)
    else:
        rows = enumerate(_parquet(path), start=1)
    return Table(str(path), sha256(path), tuple(rows), tuple(problems))


def _csv(path: Path) -> tuple[list[tuple[int, JsonObject]], list[Problem]]:
    """Rows below a header; a row of another width, or one that is no CSV, is a problem."""
    rows: list[tuple[int, JsonObject]] = []
    problems: list[Problem] = []
    csv.field_size_limit(MAX_LINE)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        try:
            delimiter = _delimiter(stream.readline())
        except UnicodeDecodeError:
            delimiter = ","  # said below, with its line
        stream.seek(0)
        reader = csv.reader(stream, strict=True, delimiter=delimiter)
        try:
            header = [name.strip() for name in next(reader, [])]
            twice = [name for name in dict.fromkeys(header) if name and header.count(name) > 1]
            problems += [
                Problem(SourceLocation(str(path), 1), n, "heads two fields") for n in twice
            ]
            for cells in reader:
                where = SourceLocation(str(path), reader.line_num)
                if len(cells) == len(header):
                    rows.append((reader.line_num, dict(zip(header, cells, strict=True))))
                elif cells:
                    message = f"{len(cells)} fields, and {len(header)} in the header"
                    problems.append(Problem(where, "", message))
        except (csv.Error, UnicodeDecodeError) as error:
            where = SourceLocation(str(path), reader.line_num)
            problems.append(Problem(where, "", f"not CSV in UTF-8 ({in_one_line(error)})"))
    return rows, problems


def _delimiter(header: str) -> str:
    """What parts the fields of a header: a comma, else a semicolon or tab (spreadsheets)."""
    for delimiter in ",;\t":
        if len(next(csv.reader([header], delimiter=delimiter), [])) > 1:
            return delimiter
    return ","


def _parquet(path: Path) -> Iterator[JsonObject]:
    from pyarrow import ArrowException, parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except ArrowException as error:
        raise EvalkitError(f"{path}: not a Parquet file: {in_one_line(error)}") from None


@lru_cache(maxsize=4)
def load_dataset(name: str, subset: str | None, split: str, revision: str | None) -> Table:
    """One split of a data set of the hub, or of a folder in its layout; no code of it is run.

    Raises:
        EvalkitError: it cannot be had.
    """
    import datasets

    where = f"{name}[{split}]"
    offline = datasets.DownloadConfig(local_files_only=is_offline())
    try:
        loaded = datasets.load_dataset(
            name, subset, split=split, revision=revision, download_config=offline
        )
    except Exception as error:  # whatever the hub or a damaged file makes the library raise
        raise EvalkitError(f"{where}: cannot be loaded: {in_one_line(error)}") from error
    rows = tuple(enumerate(loaded, start=1))
    digest = hashlib.sha256()
    for _, row in rows:
        digest.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return Table(where, digest.hexdigest(), rows)
