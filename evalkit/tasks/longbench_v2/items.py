"""The questions of ``data.json``: indexed in one pass, texts read again when they are needed.

The file has 465 MB in one JSON list; no more than one record of it is in memory at a time.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField, kind
from evalkit.data.json_parts import Part, mapped, outline
from evalkit.data.records import (
    MAX_LINE,
    Problem,
    SourceLocation,
    integer,
    one_of,
    parsed,
    text,
)
from evalkit.data.sources import locate, of_card
from evalkit.dsa.json_types import JsonObject

CARD = "longbench_v2"
LETTERS = ("A", "B", "C", "D")


@dataclass(frozen=True, slots=True)
class Item:
    """One question without its text.

    Attributes:
        number: 1-based record of the file.
        id: ``_id`` of the data set.
        facets: domain, sub_domain, difficulty and length.
        question: what is asked.
        choices: A to D.
        answer: the letter.
        span: bytes of the record in the file.
    """

    number: int
    id: str
    facets: Mapping[str, str]
    question: str
    choices: tuple[str, ...]
    answer: str
    span: Part


@dataclass(frozen=True, slots=True)
class Index:
    """All questions of a file.

    Attributes:
        path: the file.
        items: in order.
        problems: of records that are none.
    """

    path: Path
    items: tuple[Item, ...]
    problems: tuple[Problem, ...]

    def record(self, item: Item) -> JsonObject:
        """The whole record, read from the file."""
        with mapped(self.path) as data:
            record: JsonObject = json.loads(data[item.span[0] : item.span[1]].decode("utf-8"))
        return record

    def context(self, item: Item) -> str:
        """The text of a question."""
        return str(self.record(item)["context"])

    def retrieved(self, item: Item, count: int) -> str:
        """The best pieces of a text in their order, as the official script joins them.

        Raises:
            EvalkitError: the data has no (usable) retrieved pieces.
        """
        try:
            pieces = _pieces(self.record(item))[:count]
        except BadField as error:
            where = SourceLocation(str(self.path), item.number)
            message = f"{error.message}; 0shot_rag needs data with a retriever's results"
            raise EvalkitError(f"{Problem(where, error.field, message)}") from None
        ordered = sorted(pieces, key=lambda piece: piece[0])
        return "\n\n".join(
            f"Retrieved chunk {i}: {content}" for i, (_, content) in enumerate(ordered, start=1)
        )


def pinned() -> Path:
    """The pinned file; raises EvalkitError where it cannot be had."""
    return locate(of_card(CARD, "data"))


def index(path: Path) -> Index:
    """The questions of a file; one index is kept in memory.

    Raises:
        EvalkitError: it cannot be read, or is no JSON list of records.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise EvalkitError(f"{path}: cannot be read: {error.strerror or error}") from None
    return _index(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)
def _index(path: Path, _size: int, _mtime: int) -> Index:
    items, problems = [], []
    with mapped(path) as data:
        for number, span in enumerate(_spans(data, path), start=1):
            where = SourceLocation(str(path), number)
            if span[1] - span[0] > MAX_LINE:
                problems.append(Problem(where, "", f"longer than {MAX_LINE} bytes"))
                continue
            item = parsed(data[slice(*span)], where, partial(_item, number=number, span=span))
            if isinstance(item, Problem):
                problems.append(item)
            else:
                items.append(item)
    if not items and not problems:
        raise EvalkitError(f"{path}: no records")
    return Index(path, tuple(items), tuple(problems))


def _spans(data: mmap.mmap, path: Path) -> Iterator[Part]:
    """Where the records of a JSON list begin and end."""
    try:
        members = outline(data)
    except BadField as error:
        raise EvalkitError(f"{path}: no JSON list of records: {error.message}") from None
    if not isinstance(members, list):
        raise EvalkitError(f"{path}: no JSON list of records")
    for number, member in enumerate(members, start=1):
        if not isinstance(member, Part):
            raise EvalkitError(f"{path}:{number}: {kind(member)}, not an object")
        yield member


def _item(data: JsonObject, number: int, span: Part) -> Item:
    """A checked record; raises BadField."""
    identity = text(data, "_id")
    facets = {
        "domain": text(data, "domain"),
        "sub_domain": text(data, "sub_domain"),
        "difficulty": one_of(data, "difficulty", ("easy", "hard")),
        "length": one_of(data, "length", ("short", "medium", "long")),
    }
    question = text(data, "question", empty=False)
    choices = tuple(text(data, f"choice_{letter}", empty=False) for letter in LETTERS)
    text(data, "context", empty=False)
    answer = one_of(data, "answer", LETTERS)
    return Item(number, identity, facets, question, choices, answer, span)


def _pieces(data: JsonObject) -> list[tuple[int, str]]:
    """Position and text of the retrieved pieces, the best first."""
    field = "retrieved_context"
    pieces = data.get(field)
    if field not in data or not isinstance(pieces, list) or not pieces:
        missing = "missing" if field not in data else f"{kind(pieces)}, not a list of pieces"
        raise BadField(field, missing if pieces != [] else "an empty list")
    read = []
    for i, piece in enumerate(pieces):
        if not isinstance(piece, dict):
            raise BadField(f"{field}[{i}]", f"{kind(piece)}, not an object")
        try:
            read.append((integer(piece, "c_idx"), text(piece, "content")))
        except BadField as error:
            raise BadField(f"{field}[{i}].{error.field}", error.message) from None
    return read
