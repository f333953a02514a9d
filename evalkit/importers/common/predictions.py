"""What importers hand over: predictions, what is wrong with others, and checked field access."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField, kind
from evalkit.data.records import Problem, SourceLocation
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.scorers import score

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One prediction with its gold.

    Attributes:
        task: the cell it belongs to.
        text: what the model said; ``""`` with an `error`.
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
        cluster: what the record tells of the text it shares with others of its cell, or None.
        may_share: whether samples of its cell may share a text.
    """

    task: str
    text: str
    references: tuple[str, ...]
    metric: str
    where: SourceLocation
    key: str | None = None
    error: str | None = None
    meta: JsonObject = field(default_factory=dict)
    extra: JsonObject = field(default_factory=dict)
    digest: str = ""
    gold: str = "answers"
    alias: str | None = None
    cluster: str | None = None
    may_share: bool = False


@dataclass(frozen=True, slots=True)
class UnusableLine:
    """A line without a usable record; it keeps its position."""

    where: SourceLocation


Line = Prediction | UnusableLine
"""What a line of an imported file holds."""


@dataclass(slots=True)
class PredictionSet:
    """Predictions read so far, and what is wrong with other lines.

    Attributes:
        lines: per task, its lines in order.
        problems: everything wrong, in order.
        notes: what a reader of the report should know besides.
        expected: per task, how many samples the benchmark has, where that is known.
        without_gold: predictions whose record has no gold, but an id (`alias`) by which it may be
            known.
        phrases: key phrases of the needle, as the user gave them; empty: the original ones.
        fields: fields of a record by our names, as the user gave them.
        metric: of all records, likewise.
    """

    lines: dict[str, list[Line]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    expected: dict[str, int] = field(default_factory=dict)
    without_gold: list[Prediction] = field(default_factory=list)
    phrases: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    metric: str = ""

    def add(self, prediction: Prediction) -> None:
        """Take a prediction; one whose gold cannot be scored with its metric is unusable."""
        if not prediction.references and prediction.alias is not None:
            self.without_gold.append(prediction)
            return
        lines = self.lines.setdefault(prediction.task, [])
        try:
            score(prediction.metric, "", prediction.references, meta=prediction.meta)
        except EvalkitError as error:
            self.problem(prediction.where, prediction.gold, f"{error}; left out")
            lines.append(UnusableLine(prediction.where))
        else:
            lines.append(prediction)

    def take(
        self, row: FieldReader | UnusableLine, task: str, read: Callable[[FieldReader], Prediction]
    ) -> None:
        """Add what a line holds; one without a usable record keeps its position, and is noted."""
        if not isinstance(row, FieldReader):
            self.add_unusable(task, row.where)
            return
        try:
            self.add(read(row))
        except BadField as error:
            self.problem(row.where, error.field, f"{error.message}; left out")
            self.add_unusable(task, row.where)

    @property
    def sha256(self) -> str:
        """Of all that was read: the same files again are known by it."""
        read = [(task, *_read(line)) for task, lines in self.lines.items() for line in lines]
        read += [(line.task, *_read(line)) for line in self.without_gold]
        return hashlib.sha256(repr(read).encode("utf-8", "surrogatepass")).hexdigest()

    def add_unusable(self, task: str, where: SourceLocation) -> None:
        """Keep the position of a line that has no usable record."""
        self.lines.setdefault(task, []).append(UnusableLine(where))

    def problem(self, where: SourceLocation, name: str, message: str) -> None:
        """Note what is wrong."""
        self.problems.append(Problem(where, name, message))


def _read(line: Line) -> tuple[object, ...]:
    if isinstance(line, UnusableLine):
        return ()
    return line.key, line.alias, line.text, line.error, line.references, line.metric, line.digest


@dataclass(frozen=True, slots=True)
class FieldReader:
    """A parsed record whose fields are read with a check of their type.

    Attributes:
        data: the fields.
        where: file and line.
        predictions: takes note of what had to be mended.
        inside: name of the field that holds these fields, such as ``doc``.
        digest: equal for equal lines.
    """

    data: JsonObject
    where: SourceLocation
    predictions: PredictionSet
    inside: str = ""
    digest: str = ""

    def name(self, key: str) -> str:
        """The field in a message."""
        return f"{self.inside}.{key}" if self.inside else key

    def value(self, key: str) -> JsonValue:
        """Whatever the field holds; raises BadField where it is missing or null."""
        if self.data.get(key) is None:
            raise BadField(self.name(key), "null" if key in self.data else "missing")
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

    def text_or_texts(self, key: str) -> tuple[str, ...]:
        """A text or whole number, or a list of texts, one at least."""
        value = self.value(key)
        if isinstance(value, list | tuple):
            return self.texts(key)
        return (str(value),) if type(value) is int else (self.text(key),)

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

    def within(self, key: str) -> FieldReader:
        """The fields of an object."""
        value = self.value(key)
        if not isinstance(value, dict):
            raise BadField(self.name(key), f"{kind(value)}, not an object")
        return FieldReader(value, self.where, self.predictions, self.name(key), self.digest)

    def _text(self, value: JsonValue, name: str) -> str:
        if not isinstance(value, str):
            raise BadField(name, f"{kind(value)}, not text")
        clean = _SURROGATES.sub("\ufffd", value)
        if clean != value:
            self.predictions.problem(self.where, name, "lone surrogate, replaced by U+FFFD")
        return clean
