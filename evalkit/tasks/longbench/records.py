"""Records of LongBench: from ``data.zip`` in place, or from a folder in its layout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.data import archive
from evalkit.data.cache import sha256
from evalkit.data.records import (
    Problem,
    integer,
    optional_texts,
    read_lines,
    text,
    texts,
)
from evalkit.data.sources import locate, of_card
from evalkit.dsa.json_types import JsonObject
from evalkit.tasks.longbench.facts import CARD, Facts, tasks


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        input: the question, often empty.
        context: the long text.
        answers: accepted answers.
        length: words (characters in Chinese) of the text, as the data set counts them.
        all_classes: classes to choose from.
        id: ``_id`` of the data set.
    """

    input: str
    context: str
    answers: tuple[str, ...]
    length: int
    all_classes: tuple[str, ...] | None
    id: str


@dataclass(frozen=True, slots=True)
class File:
    """The records of one file.

    Attributes:
        where: its name in messages.
        records: line numbers and records.
        problems: of the lines that are no record.
        sha256: of its bytes.
    """

    where: str
    records: tuple[tuple[int, Record], ...]
    problems: tuple[Problem, ...]
    sha256: str


def pinned() -> Path:
    """The pinned archive; raises EvalkitError where it cannot be had."""
    return locate(of_card(CARD, "data"))


def is_pinned(path: Path) -> bool:
    """Whether a file is the pinned archive itself."""
    return sha256(path) == of_card(CARD, "data").sha256


def load(path: Path, task: str, *, e: bool) -> File:
    """The records of one task from an archive or folder; the last few files are kept in memory.

    Raises:
        EvalkitError: there is no such file, or it cannot be read.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None
    return _load(path, task, e, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=2)
def _load(path: Path, task: str, e: bool, _size: int, _mtime: int) -> File:
    name = f"{task}_e.jsonl" if e else f"{task}.jsonl"
    facts = tasks()[task]
    with _opened(path, (f"data/{name}", name)) as (stream, where):
        digest = _Digest(stream)
        records, problems = read_lines(digest, where, lambda data: parse(data, task, facts))
    if not records and not problems:
        raise EvalkitError(f"{where}: no records")
    return File(where, tuple(records), tuple(problems), digest.hexdigest())


def parse(data: JsonObject, task: str, facts: Facts) -> Record:
    """Check one record; raises BadField."""
    dataset = text(data, "dataset")
    if dataset not in (task, f"{task}_e"):
        raise BadField("dataset", f"{dataset[:40]!r}, not {task}")
    classes = optional_texts(data, "all_classes")
    if facts.has_classes and classes is None:
        raise BadField("all_classes", f"null, but {task} is scored by its classes")
    text(data, "language")
    answers = texts(data, "answers")
    if not any(answer.strip() for answer in answers):
        raise BadField("answers", "all empty")
    return Record(
        input=text(data, "input"),
        context=text(data, "context", empty=False),
        answers=answers,
        length=integer(data, "length"),
        all_classes=classes,
        id=text(data, "_id"),
    )


@contextmanager
def _opened(path: Path, names: tuple[str, ...]) -> Iterator[tuple[IO[bytes], str]]:
    """The first of these files in a folder or archive, and what to call it."""
    if not path.is_dir():
        with archive.member(path, names) as (stream, name):
            yield stream, f"{path}:{name}"
        return
    for name in names:
        if (path / name).is_file():
            try:
                with (path / name).open("rb") as stream:
                    yield stream, str(path / name)
            except OSError as error:
                raise EvalkitError(f"{path / name}: cannot be read: {error.strerror}") from None
            return
    raise EvalkitError(f"{path}: has no {names[-1]}")


class _Digest:
    """A stream whose lines are hashed while they are read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._sha256 = stream, hashlib.sha256()

    def readline(self, limit: int = -1, /) -> bytes:
        line = self._stream.readline(limit)
        self._sha256.update(line)
        return line

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()
