"""Results of LongBench v2's own script: one jsonl with ``_id``, ``answer`` and ``response``."""

from __future__ import annotations

from pathlib import Path

from evalkit.data.records import BadField
from evalkit.importers import benchmarks
from evalkit.importers.files import found
from evalkit.importers.lines import rows
from evalkit.importers.records import Reading, Record, Row
from evalkit.types import EvalkitError

WHAT = "a results file of LongBench v2 (*.jsonl)"
TASK = "longbench_v2"
BUCKETS = ("domain", "sub_domain", "difficulty", "length")


def read(path: Path, reading: Reading) -> None:
    """Read a results file, or a folder that holds one.

    Raises:
        EvalkitError: there is none or more than one, or it cannot be read.
    """
    files = found(path, "*.jsonl", WHAT)
    if len(files) > 1:
        names = ", ".join(name for _, name in files[:4])
        raise EvalkitError(f"{path}: {len(files)} results files ({names} …): name one of them")
    file, name = files[0]
    reading.expected[TASK] = benchmarks.V2_COUNT
    for row in rows(file, name, reading):
        if not isinstance(row, Row):
            continue
        try:
            reading.add(one(row, benchmarks.prediction_of(row, "response")))
        except BadField as error:
            reading.problem(row.where, error.field, f"{error.message}; left out")


def one(row: Row, prediction: str | None) -> Record:
    """A record of LongBench v2."""
    answer = row.text("answer").strip()
    if answer not in ("A", "B", "C", "D"):
        raise BadField(row.name("answer"), f"{answer[:20]!r}, not one of A, B, C and D")
    meta = {key: row.text(key) for key in BUCKETS if row.data.get(key) is not None}
    return benchmarks.record(
        TASK, row, prediction, (answer,), "choice", row.text("_id"), meta, gold="answer"
    )
