"""Predictions as plain JSON lines, whose fields the user names.

A line is an answer: what was said, its gold, and as far as they are there its id, its task (else
the file's name) and the unit that shares its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.core.plugins import near
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet
from evalkit.scorers import METRICS

WHAT = "predictions as JSON lines (*.jsonl)"
NAMES = ("prediction", "references", "id", "task", "cluster", "length", "all_classes")
NEEDED = ("prediction", "references")


def read(path: Path, predictions: PredictionSet) -> None:
    """Read a file, or all files below a folder.

    Raises:
        EvalkitError: no metric, or one that is unknown; a field that is none of ours; no record
            has a field that was named; or a file cannot be read.
    """
    if not predictions.metric:
        raise EvalkitError("--metric: say how the answers are scored, for example --metric qa_f1")
    METRICS[predictions.metric]  # refuses an unknown one
    for name in predictions.fields:
        if name not in NAMES:
            raise EvalkitError(f"--field {name}=…: {near(name, NAMES)}")
    fields = {name: predictions.fields.get(name, name) for name in NAMES}
    missing = set(predictions.fields)
    for file, name in files_of(path, "*.jsonl", WHAT):
        read_one = partial(_one, fields=fields, task=file.stem, metric=predictions.metric)
        for row in rows(file, name, predictions):
            if isinstance(row, FieldReader):
                missing -= {ours for ours in missing if fields[ours] in row.data}
            predictions.take(row, file.stem, read_one)
    if missing:
        named = ", ".join(f"{fields[name]} ({name})" for name in sorted(missing))
        raise EvalkitError(f"{path}: no record has the field {named}")


def _one(row: FieldReader, fields: Mapping[str, str], task: str, metric: str) -> Prediction:
    def given(name: str) -> str | None:
        """A text or whole number as text; None where the record has none."""
        value = row.data.get(fields[name])
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return row.text(fields[name])

    for name in NEEDED:
        if fields[name] not in row.data:
            raise BadField(fields[name], "missing")
    references = row.text_or_texts(fields["references"])
    if not all(gold.strip() for gold in references):
        raise BadField(fields["references"], "empty")
    told = {name: row.data.get(fields[name]) for name in ("length", "all_classes")}
    meta = {name: value for name, value in told.items() if value is not None}
    record = benchmark_facts.prediction(
        given("task") or task,
        row,
        benchmark_facts.answer_of(row, fields["prediction"]),
        references,
        metric,
        given("id"),
        meta,
        gold=fields["references"],
    )
    return replace(record, cluster=given("cluster"), may_share=True)


FORMAT = ImportFormat(read, mapped=True)
