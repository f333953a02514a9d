"""Predictions of InfiniteBench's scripts: ``preds_<task>.jsonl``.

Fields ``prediction`` (or ``pred``), ``ground_truth`` (or ``label``) and ``id``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField, kind
from evalkit.data.records import SourceLocation
from evalkit.dsa.json_types import JsonValue
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of, folder_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet

WHAT = "InfiniteBench's predictions (preds_<task>.jsonl)"
METRICS = {
    "passkey": "first_number",
    "number_string": "first_number",
    "kv_retrieval": "key_value",
    "longdialogue_qa_eng": "speaker",
    "longbook_qa_eng": "qa_f1",
    "longbook_qa_chn": "char_f1_zh",
    "longbook_choice_eng": "option",
    "longbook_sum_eng": "rouge",
    "math_find": "first_value",
    "math_calc": "number_list",
    "code_run": "last_number",
    "code_debug": "code_option",
}
ROUGE_NOTE = (
    "longbook_sum_eng is scored by LongBench's ROUGE-L, InfiniteBench's own is ROUGE-Lsum of the"
    " package rouge_score"
)


def read(path: Path, predictions: PredictionSet) -> None:
    """Read a folder of one model, or one file.

    Raises:
        EvalkitError: no such task is there, files of several runs, or one that cannot be read.
    """
    runs: dict[str, str] = {}
    for file, name in files_of(path, "preds_*.jsonl", WHAT):
        task = file.stem.removeprefix("preds_")
        if task not in METRICS:
            known = ", ".join(METRICS)
            text = f"{task} is no task that is scored here ({known}); left out"
            predictions.problem(SourceLocation(name), "", text)
            continue
        runs.setdefault(folder_of(name), name)
        for row in rows(file, name, predictions):
            predictions.take(row, cell(task), partial(_one, task=task))
    if not runs:
        raise EvalkitError(f"{path}: no file of {', '.join(METRICS)} in it")
    one_run(path, runs)


def cell(task: str) -> str:
    """The cell of a task."""
    return f"infinitebench/{task}"


def _one(row: FieldReader, task: str) -> Prediction:
    said = "pred" if "prediction" not in row.data and "pred" in row.data else "prediction"
    gold = "label" if "ground_truth" not in row.data and "label" in row.data else "ground_truth"
    index = row.optional_integer("id")
    return one(task, row, said, gold, None if index is None else str(index))


def one(task: str, row: FieldReader, said: str, gold: str, key: str | None) -> Prediction:
    """A prediction of InfiniteBench.

    Args:
        task: one of `METRICS`.
        row: its record.
        said: field of the answer.
        gold: field of the gold, as InfiniteBench's data have it.
        key: id within the task.
    """
    if task == "longbook_sum_eng" and ROUGE_NOTE not in row.predictions.notes:
        row.predictions.notes.append(ROUGE_NOTE)
    answer = benchmark_facts.answer_of(row, said)
    try:
        golds = references(row.value(gold))
    except BadField as error:
        raise BadField(row.name(gold), error.message) from None
    record = benchmark_facts.prediction(
        cell(task), row, answer, golds, METRICS[task], key, {}, gold=gold
    )
    return replace(record, may_share=True)


def references(gold: JsonValue) -> tuple[str, ...]:
    """Gold as texts: a text or number, or a list of them, which may stand in another list.

    Raises:
        BadField: it is none of these, or empty.
    """
    items = gold if isinstance(gold, list) else [gold]
    if len(items) == 1 and isinstance(items[0], list):
        items = items[0]
    if not items:
        raise BadField("", "an empty list")
    return tuple(map(_text, items))


def _text(item: JsonValue) -> str:
    if isinstance(item, str):
        return item.encode("utf-8", "replace").decode()
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise BadField("", f"{kind(item)} in it, not text or a number")
    return str(item)


FORMAT = ImportFormat(read)
