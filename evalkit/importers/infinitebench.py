"""Predictions of InfiniteBench's scripts: ``preds_<task>.jsonl``, of its three retrieval tasks.

Fields ``prediction`` (or ``pred``), ``ground_truth`` (or ``label``) and ``id``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.data.records import SourceLocation
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
}


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
        cell = f"infinitebench/{task}"
        read_one = partial(_one, cell=cell, metric=METRICS[task])
        for row in rows(file, name, predictions):
            predictions.take(row, cell, read_one)
    if not runs:
        raise EvalkitError(f"{path}: no file of {', '.join(METRICS)} in it")
    one_run(path, runs)


def _one(row: FieldReader, cell: str, metric: str) -> Prediction:
    said = "pred" if "prediction" not in row.data and "pred" in row.data else "prediction"
    gold = "label" if "ground_truth" not in row.data and "label" in row.data else "ground_truth"
    index = row.optional_integer("id")
    key = None if index is None else str(index)
    answer = benchmark_facts.answer_of(row, said)
    record = benchmark_facts.prediction(
        cell, row, answer, row.text_or_texts(gold), metric, key, {}, gold=gold
    )
    return replace(record, may_share=True)


FORMAT = ImportFormat(read)
