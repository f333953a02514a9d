"""Results of the first needle test: a folder with one JSON object a file, or a jsonl of them.

Fields ``context_length``, ``depth_percent``, ``version``, ``needle``, ``model_response``, ``score``
(the judge's, kept beside the answer).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows, whole
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet

WHAT = "needle results (*.json, or one *.jsonl)"


def read(path: Path, predictions: PredictionSet) -> None:
    """Read a folder, a jsonl or one result.

    Raises:
        EvalkitError: there is nothing, a file cannot be read, or the results are of several models.
    """
    models: dict[str, str] = {}
    for file, name in files_of(path, "*.json*", WHAT):
        one = file.suffix == ".json"
        for row in [whole(file, name, predictions)] if one else rows(file, name, predictions):
            if not isinstance(row, FieldReader):
                continue
            try:
                predictions.add(_one(row))
            except BadField as error:
                predictions.problem(row.where, error.field, f"{error.message}; left out")
            models.setdefault(str(row.data.get("model"))[:80], str(row.where))
    if len(models) > 1:
        first = ", ".join(f"{model} in {where}" for model, where in list(models.items())[:3])
        raise EvalkitError(
            f"{path}: results of {len(models)} models ({first}): import one at a time"
        )


def _one(row: FieldReader) -> Prediction:
    length, depth = row.integer("context_length"), row.number("depth_percent")
    if length < 1 or not 0 <= depth <= 100:
        field = "context_length" if length < 1 else "depth_percent"
        raise BadField(row.name(field), "out of range")
    version = row.optional_integer("version") or 1
    references = benchmark_facts.needle_references(row.text("needle"), row)
    judged = row.data.get("score") is not None
    extra = {"judge_score": row.number("score")} if judged else {}
    prediction = benchmark_facts.prediction(
        f"kamradt@{length}",
        row,
        benchmark_facts.answer_of(row, "model_response"),
        references,
        "needle_phrases",
        f"{depth:g}/{version}",
        {"length": length, "depth": depth},
        extra,
        gold="needle",
    )
    return replace(prediction, cluster=benchmark_facts.HAYSTACK)


FORMAT = ImportFormat(read)
