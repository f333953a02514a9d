"""Predictions of LongBench's own script: a folder of ``<task>.jsonl``.

Fields ``pred``, ``answers``, ``all_classes``, ``length``; no ids, so that the position counts.
"""

from __future__ import annotations

import difflib
from pathlib import Path, PurePosixPath

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.data.records import SourceLocation
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of, folder_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows
from evalkit.importers.common.predictions import FieldReader, PredictionSet
from evalkit.tasks.longbench.facts import tasks
from evalkit.tasks.longbench.suites import cell

WHAT = "LongBench's predictions (<task>.jsonl)"


def read(path: Path, predictions: PredictionSet) -> None:
    """Read a folder, or the file of one task.

    Raises:
        EvalkitError: nothing of LongBench is there, files of several runs, or one that cannot be
            read.
    """
    extended = "pred_e" in (path.name, path.parent.name)
    seen: set[str] = set()
    runs: dict[str, str] = {}
    for file, name in files_of(path, "*.jsonl", WHAT):
        base = benchmark_facts.longbench_base(file.stem)
        if base is None:
            near = difflib.get_close_matches(file.stem, tasks(), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            predictions.problem(SourceLocation(name), "", f"no task of LongBench{hint}; left out")
            continue
        e = extended or file.stem != base or "pred_e" in PurePosixPath(name).parts
        runs.setdefault(folder_of(name, "pred", "pred_e"), name)
        one_run(path, runs)
        task = f"{base} of LongBench-E" if e else base
        if task in seen:
            raise EvalkitError(f"{path}: two files of the task {task}: name the folder of one run")
        seen.add(task)
        _read_task(file, name, base, predictions, e=e)
    if not seen:
        raise EvalkitError(f"{path}: no file of a LongBench task")


def _read_task(file: Path, name: str, base: str, predictions: PredictionSet, *, e: bool) -> None:
    for row in rows(file, name, predictions):
        try:
            if isinstance(row, FieldReader):
                answer = benchmark_facts.answer_of(row, "pred")
                predictions.add(benchmark_facts.longbench(base, row, answer, None, e=e))
                continue
        except BadField as error:
            predictions.problem(row.where, error.field, f"{error.message}; left out")
        if not e:  # which cell of LongBench-E the line belongs to is not known
            predictions.add_unusable(cell(base), row.where)


FORMAT = ImportFormat(read)
