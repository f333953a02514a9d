"""Predictions of LongBench's own script: a folder of ``<task>.jsonl``.

Fields ``pred``, ``answers``, ``all_classes``, ``length``; no ids, so that the position counts.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from evalkit.data.records import BadField
from evalkit.importers import benchmarks
from evalkit.importers.files import found
from evalkit.importers.lines import rows
from evalkit.importers.records import Reading, Row, Where
from evalkit.types import EvalkitError

WHAT = "LongBench's predictions (<task>.jsonl)"


def read(path: Path, reading: Reading) -> None:
    """Read a folder, or the file of one task.

    Raises:
        EvalkitError: nothing of LongBench is there, or a file cannot be read.
    """
    extended = "pred_e" in (path.name, path.parent.name)
    seen: set[str] = set()
    for file, name in found(path, "*.jsonl", WHAT):
        base = benchmarks.longbench_base(file.stem)
        if base is None:
            near = difflib.get_close_matches(file.stem, benchmarks.LONGBENCH, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            reading.problem(Where(name), "", f"no task of LongBench{hint}; left out")
            continue
        task = f"{base}_e" if extended else file.stem
        if task in seen:
            raise EvalkitError(f"{path}: two files of the task {task}: name the folder of one run")
        seen.add(task)
        reading.expected[task] = benchmarks.longbench_count(task)
        _read_task(file, name, task, base, reading)
    if not seen:
        raise EvalkitError(f"{path}: no file of a LongBench task")


def _read_task(file: Path, name: str, task: str, base: str, reading: Reading) -> None:
    reading.slots.setdefault(task, [])
    for row in rows(file, name, reading):
        if not isinstance(row, Row):
            reading.hole(task, row)
            continue
        try:
            prediction = benchmarks.prediction_of(row, "pred")
            reading.add(benchmarks.longbench(task, base, row, prediction, None))
        except BadField as error:
            reading.problem(row.where, error.field, f"{error.message}; left out")
            reading.hole(task, row.where)
