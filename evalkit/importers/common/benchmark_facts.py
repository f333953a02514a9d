"""What importers must know of the benchmarks: metrics, counts, and how gold is made of a record."""

from __future__ import annotations

from dataclasses import replace

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.importers.common.predictions import FieldReader, Prediction
from evalkit.tasks.common.context_label import context_label
from evalkit.tasks.longbench.facts import bin_of, in_e, official_count, scoring_meta, tasks
from evalkit.tasks.longbench.suites import cell
from evalkit.tasks.needle.kamradt import NEEDLE, PHRASES


def longbench_base(task: str) -> str | None:
    """The task that a file or log is about; ``<task>_e`` is one of LongBench-E, others are None."""
    base = task.removesuffix("_e")
    return base if base in tasks() and (base == task or in_e(base)) else None


def longbench(
    base: str, row: FieldReader, answer: str | None, key: str | None, *, e: bool = False
) -> Prediction:
    """A prediction of LongBench, or of LongBench-E where the length tells the cell."""
    meta: dict[str, JsonValue] = {}
    length = row.integer("length") if e else row.optional_integer("length")
    if length is not None:
        meta["length"] = length
    facts = tasks()[base]
    meta |= scoring_meta(base, row.texts("all_classes") if facts.has_classes else None)
    name = cell(base, bin_of(length) if e and length is not None else None)
    count = official_count(base, bin_of(length or 0) if e else None)
    row.predictions.expected.setdefault(name, count)
    record = prediction(name, row, answer, row.texts("answers"), facts.metric, key, meta)
    return shared(record, row, None if length is None else f"length {length}")


def shared(prediction: Prediction, row: FieldReader, otherwise: str | None = None) -> Prediction:
    """With the unit that its text makes of it, where the record holds the text.

    Args:
        prediction: of a cell in which several questions may be about one text.
        row: its record.
        otherwise: the unit where the record holds no text.
    """
    text = row.data.get("context")
    unit = context_label(text) if isinstance(text, str) and text else otherwise
    return replace(prediction, cluster=unit, may_share=True)


def ruler_metric(task: str) -> str:
    """Any of the references for qa, all of them for the others."""
    return "ruler_part" if task.startswith("qa") else "ruler_all"


def ruler_cell(task: str, length: int | None) -> str:
    """``<task>@<length>``, or the task alone where the length is not known."""
    return task if length is None else f"{task}@{length}"


HAYSTACK = "haystack"
"""The unit of all depths of a length in the first needle test: they are read in one text."""


def needle_references(needle: str, where: FieldReader) -> tuple[str, ...]:
    """The key phrases given, or of the original needle, else the whole needle (noted once).

    Raises:
        EvalkitError: a key phrase that was given does not stand in the needle.
    """
    text = " ".join(needle.split())
    if not text:
        raise BadField(where.name("needle"), "empty")
    phrases = where.predictions.phrases
    for phrase in phrases:
        if " ".join(phrase.split()).casefold() not in text.casefold():
            raise EvalkitError(f"{where.where}: no key phrase {phrase!r} in the needle {text!r}")
    if phrases or text == " ".join(NEEDLE.split()):
        return phrases or PHRASES
    note = (
        "another needle than the original one: an answer is right if it holds the whole sentence,"
        " which measures wording (--phrase names what must be in it)"
    )
    if note not in where.predictions.notes:
        where.predictions.notes.append(note)
    return (text,)


def prediction(
    task: str,
    row: FieldReader,
    answer: str | None,
    references: tuple[str, ...],
    metric: str,
    key: str | None,
    meta: JsonObject,
    extra: JsonObject | None = None,
    gold: str = "answers",
) -> Prediction:
    """A prediction; without an answer it is an error that scores 0."""
    return Prediction(
        task=task,
        text=answer or "",
        references=references,
        metric=metric,
        where=row.where,
        key=key,
        error="no prediction in the imported file" if answer is None else None,
        meta=meta,
        extra=extra or {},
        digest=row.digest,
        gold=row.name(gold),
        may_share=metric == "ruler_part" and task.startswith("qa_1"),
    )


def answer_of(row: FieldReader, key: str) -> str | None:
    """The text a model said; None, with a problem noted, where the field holds no text."""
    try:
        return row.text(key)
    except BadField as error:
        row.predictions.problem(row.where, error.field, f"{error.message}; counted as an error")
        return None
