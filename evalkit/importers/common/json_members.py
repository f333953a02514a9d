"""The members of one JSON object of any size and quality, one at a time."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evalkit.core.json_fields import BadField
from evalkit.data.json_parts import Part, mapped, outline
from evalkit.data.records import MAX_LINE, SourceLocation
from evalkit.dsa.json_types import JsonValue
from evalkit.importers.common.jsonl import left_out, record
from evalkit.importers.common.predictions import FieldReader, PredictionSet, UnusableLine


@dataclass(frozen=True, slots=True)
class JsonMembers:
    """What a JSON file holds.

    Attributes:
        where: the file.
        members: of its object; objects and lists by their place.
        data: of the file.
        predictions: takes note of the problems.
    """

    where: SourceLocation
    members: Mapping[str, JsonValue | Part]
    data: mmap.mmap
    predictions: PredictionSet

    @property
    def keys(self) -> list[str]:
        """Names of the members."""
        return list(self.members)

    def row(self, key: str) -> FieldReader | UnusableLine:
        """The object under a key; what is none is noted as a problem."""
        return self._row(self.members.get(key), key)

    def rows(self, key: str) -> Iterator[FieldReader | UnusableLine]:
        """The objects of the list under a key; what is none is noted as a problem.

        Raises:
            BadField: there is no list under the key.
        """
        part = self.members.get(key)
        items = outline(self.data, part) if isinstance(part, Part) else None
        if not isinstance(items, list):
            raise BadField(key, "no list in the file")
        for number, item in enumerate(items):
            yield self._row(item, f"{key}[{number}]")

    def _row(self, member: JsonValue | Part, name: str) -> FieldReader | UnusableLine:
        if not isinstance(member, Part):
            return left_out(self.where, name, "not an object", self.predictions)
        if member.stop - member.start > MAX_LINE:
            return left_out(self.where, name, f"more than {MAX_LINE} bytes", self.predictions)
        content = self.data[slice(*member)]
        return record(content, self.where, self.predictions, inside=name)


@contextmanager
def json_members(path: Path, name: str, predictions: PredictionSet) -> Iterator[JsonMembers | None]:
    """The members of the object in a JSON file; None, noted as a problem, where there is none.

    Raises:
        EvalkitError: the file cannot be read.
    """
    where = SourceLocation(name)
    if not path.stat().st_size:
        left_out(where, "", "empty", predictions)
        yield None
        return
    with mapped(path) as data:
        try:
            members = outline(data)
        except BadField as error:
            left_out(where, "", error.message, predictions)
            yield None
            return
        if not isinstance(members, Mapping):
            left_out(where, "", "a list, not an object", predictions)
            yield None
            return
        yield JsonMembers(where, members, data, predictions)
