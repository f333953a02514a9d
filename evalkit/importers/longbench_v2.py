"""Results of LongBench v2's own script: one jsonl with ``_id``, ``answer`` and ``response``.

The name of the file says how the questions were asked.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.data import cards
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet
from evalkit.tasks.longbench_v2.slices import FACETS, LETTERS

WHAT = "a results file of LongBench v2 (*.jsonl)"
ZERO_SHOT = "longbench-v2/0shot"
LETTER_ALONE = "records without a response: the letter that their script read in it is taken"
_MODE = re.compile(r".*_(?P<mode>cot|no_context|rag_\d+)")


def read(path: Path, predictions: PredictionSet) -> None:
    """Read a results file, or a folder that holds one.

    Raises:
        EvalkitError: there is none or more than one, or it cannot be read.
    """
    files = files_of(path, "*.jsonl", WHAT)
    if len(files) > 1:
        names = ", ".join(name for _, name in files[:4])
        raise EvalkitError(f"{path}: {len(files)} results files ({names} …): name one of them")
    file, name = files[0]
    task = cell_of(file.stem)
    for row in rows(file, name, predictions):
        if not isinstance(row, FieldReader):
            continue
        try:
            predictions.add(one(task, row, _answer(row)))
        except BadField as error:
            predictions.problem(row.where, error.field, f"{error.message}; left out")


def cell_of(name: str) -> str:
    """The cell of a results file: ``<model>.jsonl``, ``<model>_cot.jsonl``, ``_rag_4`` ..."""
    match = _MODE.fullmatch(name)
    return f"{ZERO_SHOT}_{match['mode']}" if match else ZERO_SHOT


def _answer(row: FieldReader) -> str | None:
    """What the model said; of a record with the letter alone, that letter."""
    if "response" in row.data or "error" in row.data or "pred" not in row.data:
        return benchmark_facts.answer_of(row, "response")
    if LETTER_ALONE not in row.predictions.notes:
        row.predictions.notes.append(LETTER_ALONE)
    letter = row.data["pred"]
    return f"The correct answer is ({letter})" if letter in LETTERS else ""


def one(task: str, row: FieldReader, answer: str | None) -> Prediction:
    """A prediction of LongBench v2; without references where the record has no answer key."""
    gold = "" if row.data.get("answer") is None else row.text("answer").strip()
    if gold and gold not in LETTERS:
        raise BadField(row.name("answer"), f"{gold[:20]!r}, not one of A, B, C and D")
    key = row.text("_id")
    meta = {"_id": key} | {f: row.text(f) for f in FACETS if row.data.get(f) is not None}
    row.predictions.expected.setdefault(task, cards.load("longbench_v2").counts["questions"])
    prediction = benchmark_facts.prediction(
        task, row, answer, (gold,) if gold else (), "choice", key, meta, gold="answer"
    )
    return benchmark_facts.shared(replace(prediction, alias=key), row)


FORMAT = ImportFormat(read)
