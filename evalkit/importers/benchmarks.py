"""What importers must know of the benchmarks: metrics, counts, and how gold is made of a record."""

from __future__ import annotations

from typing import Any

from evalkit.data.records import BadField
from evalkit.importers.records import Record, Row

F1, ROUGE = "qa_f1", "rouge"
LONGBENCH: dict[str, str] = {
    "narrativeqa": F1,
    "qasper": F1,
    "multifieldqa_en": F1,
    "multifieldqa_zh": "qa_f1_zh",
    "hotpotqa": F1,
    "2wikimqa": F1,
    "musique": F1,
    "dureader": "rouge_zh",
    "gov_report": ROUGE,
    "qmsum": ROUGE,
    "multi_news": ROUGE,
    "vcsum": "rouge_zh",
    "trec": "classification",
    "triviaqa": F1,
    "samsum": ROUGE,
    "lsht": "classification",
    "passage_retrieval_en": "retrieval",
    "passage_count": "count",
    "passage_retrieval_zh": "retrieval_zh",
    "lcc": "code_sim",
    "repobench-p": "code_sim",
}
"""The official metric of every task."""

FIRST_LINE = frozenset({"trec", "triviaqa", "samsum", "lsht"})
COUNTS = {"multifieldqa_en": 150, "lcc": 500, "repobench-p": 500}
COUNTS_E = {"qasper": 224, "multifieldqa_en": 150, "multi_news": 294}
V2_COUNT = 503

NEEDLE = (
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny"
    " day."
)
PHRASES = ("sandwich", "Dolores Park")


def longbench_count(task: str) -> int:
    """Samples of a task; ``<task>_e`` are those of LongBench-E."""
    if task.endswith("_e"):
        return COUNTS_E.get(task.removesuffix("_e"), 300)
    return COUNTS.get(task, 200)


def longbench_base(task: str) -> str | None:
    """The task in `LONGBENCH` that a file or log is about, None if it is none."""
    base = task.removesuffix("_e")
    return base if base in LONGBENCH else None


def longbench(task: str, base: str, row: Row, prediction: str | None, key: str | None) -> Record:
    """A record of LongBench; its gold is in `answers`, its label set in `all_classes`."""
    meta: dict[str, Any] = {}
    length = row.optional_integer("length")
    if length is not None:
        meta["length"] = length
    if LONGBENCH[base] == "classification":
        meta["all_classes"] = list(row.texts("all_classes"))
    if base in FIRST_LINE:
        meta["first_line"] = True
    return record(task, row, prediction, row.texts("answers"), LONGBENCH[base], key, meta)


def ruler_metric(task: str) -> str:
    """Any of the references for qa, all of them for the others."""
    return "ruler_part" if task.startswith("qa") else "ruler_all"


def ruler_cell(task: str, length: int | None) -> str:
    """``<task>@<length>``, or the task alone where the length is not known."""
    return task if length is None else f"{task}@{length}"


def needle_references(needle: str, where: Row) -> tuple[str, ...]:
    """The key phrases of the original needle, else the whole needle (noted once)."""
    text = " ".join(needle.split())
    if text == NEEDLE:
        return PHRASES
    if not text:
        raise BadField(where.name("needle"), "empty")
    note = (
        "another needle than the original one: an answer is right if it holds the whole sentence,"
        " which measures wording"
    )
    if note not in where.reading.notes:
        where.reading.notes.append(note)
    return (text,)


def record(
    task: str,
    row: Row,
    prediction: str | None,
    references: tuple[str, ...],
    metric: str,
    key: str | None,
    meta: dict[str, Any],
    extra: dict[str, Any] | None = None,
    gold: str = "answers",
) -> Record:
    """A record; without a prediction it is an error that scores 0."""
    return Record(
        task=task,
        prediction=prediction or "",
        references=references,
        metric=metric,
        where=row.where,
        key=key,
        error="no prediction in the imported file" if prediction is None else None,
        meta=meta,
        extra=extra or {},
        digest=row.digest,
        gold=row.name(gold),
    )


def prediction_of(row: Row, key: str) -> str | None:
    """The text a model said; None, with a problem noted, where the field holds no text."""
    try:
        return row.text(key)
    except BadField as error:
        row.reading.problem(row.where, error.field, f"{error.message}; counted as an error")
        return None
