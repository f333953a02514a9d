"""What importers hand over: records, what is wrong with others, and typed reading of fields."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.data.records import BadField, kind
from evalkit.scorers import score

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Where:
    """A line (or a file as a whole, line 0) of the imported files."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one field of one record.

    Attributes:
        where: file and line.
        field: its name, ``""`` for the line as a whole.
        message: what is wrong, and what was done about it.
    """

    where: Where
    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.where), self.field, self.message) if part)


@dataclass(frozen=True, slots=True)
class Record:
    """One prediction with its gold.

    Attributes:
        task: the cell it belongs to.
        prediction: the model's text; ``""`` with an `error`.
        references: gold answers.
        metric: name in `evalkit.scorers`.
        where: file and line.
        key: id within the task, None where the format has none and the position counts.
        error: why there is no prediction; such a record scores 0.
        meta: of the sample.
        extra: of the prediction, such as the score of a judge.
        digest: equal for equal lines.
        gold: name of the field that holds the references.
        alias: the benchmark's own id, by which a sample of the run is found that has it too.
    """

    task: str
    prediction: str
    references: tuple[str, ...]
    metric: str
    where: Where
    key: str | None = None
    error: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    gold: str = "answers"
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Hole:
    """A line without a usable record; it keeps its position."""

    where: Where


@dataclass(slots=True)
class Reading:
    """What was read so far.

    Attributes:
        slots: per task, its lines in order.
        problems: everything wrong, in order.
        notes: what a reader of the report should know besides.
        expected: per task, how many samples the benchmark has, where that is known.
    """

    slots: dict[str, list[Record | Hole]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    expected: dict[str, int] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Take a record; one whose gold cannot be scored with its metric leaves a hole."""
        slots = self.slots.setdefault(record.task, [])
        try:
            score(record.metric, "", record.references, meta=record.meta)
        except EvalkitError as error:
            self.problem(record.where, record.gold, f"{error}; left out")
            slots.append(Hole(record.where))
        else:
            slots.append(record)

    def hole(self, task: str, where: Where) -> None:
        """Keep the position of a line that has no usable record."""
        self.slots.setdefault(task, []).append(Hole(where))

    def problem(self, where: Where, name: str, message: str) -> None:
        """Note what is wrong."""
        self.problems.append(Problem(where, name, message))


@dataclass(frozen=True, slots=True)
class Row:
    """A parsed record whose fields are read with a check of their type.

    Attributes:
        data: the fields.
        where: file and line.
        reading: takes note of what had to be mended.
        inside: name of the field that holds these fields, such as ``doc``.
        digest: equal for equal lines.
    """

    data: Mapping[str, Any]
    where: Where
    reading: Reading
    inside: str = ""
    digest: str = ""

    def name(self, key: str) -> str:
        """The field in a message."""
        return f"{self.inside}.{key}" if self.inside else key

    def value(self, key: str) -> Any:
        """Whatever the field holds; raises BadField where it is missing or null."""
        if key not in self.data:
            raise BadField(self.name(key), "missing")
        if self.data[key] is None:
            raise BadField(self.name(key), "null")
        return self.data[key]

    def text(self, key: str) -> str:
        """Text; lone surrogates are replaced and noted."""
        return self._text(self.value(key), self.name(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, one at least."""
        values = self.value(key)
        if not isinstance(values, list | tuple):
            raise BadField(self.name(key), f"{kind(values)}, not a list of texts")
        if not values:
            raise BadField(self.name(key), "an empty list")
        return tuple(self._text(v, f"{self.name(key)}[{i}]") for i, v in enumerate(values))

    def optional_texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts, or None where the field is missing or null."""
        return None if self.data.get(key) is None else self.texts(key)

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadField(self.name(key), f"{kind(value)}, not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise BadField(self.name(key), "not a finite number")
        return number

    def integer(self, key: str) -> int:
        """A whole number."""
        number = self.number(key)
        if number != int(number):
            raise BadField(self.name(key), f"{number:g}, not a whole number")
        return int(number)

    def optional_integer(self, key: str) -> int | None:
        """A whole number, or None where the field is missing or null."""
        return None if self.data.get(key) is None else self.integer(key)

    def within(self, key: str) -> Row:
        """The fields of an object."""
        value = self.value(key)
        if not isinstance(value, dict):
            raise BadField(self.name(key), f"{kind(value)}, not an object")
        return Row(value, self.where, self.reading, self.name(key), self.digest)

    def _text(self, value: Any, name: str) -> str:
        if not isinstance(value, str):
            raise BadField(name, f"{kind(value)}, not text")
        clean = _SURROGATES.sub("\ufffd", value)
        if clean != value:
            self.reading.problem(self.where, name, "lone surrogate, replaced by U+FFFD")
        return clean
