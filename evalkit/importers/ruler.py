"""Predictions of RULER's own scripts: folders of ``<task>.jsonl``, one for each length.

Fields ``index``, ``pred``, ``outputs``; the length is the folder's name, as in
``<model>/synthetic/4096/pred``. Chunks ``<task>-<n>.jsonl`` are put together.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.data.records import SourceLocation
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of, folder_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows
from evalkit.importers.common.predictions import FieldReader, Line, Prediction, PredictionSet
from evalkit.tasks.ruler.config import NAMES

WHAT = "RULER's predictions (<task>.jsonl)"
LENGTH = r"[1-9]\d{1,8}"
_CHUNK = re.compile(r"(?P<task>.+?)(?:-(?P<chunk>\d{1,6}))?")


def read(path: Path, predictions: PredictionSet) -> None:
    """Read a folder of one length or of several, or one file.

    Raises:
        EvalkitError: nothing of RULER is there, files of several runs, or one that cannot be read.
    """
    cells: dict[str, list[tuple[int, Path, str]]] = {}
    runs: dict[str, str] = {}
    for file, name in files_of(path, "*.jsonl", WHAT):
        match = _CHUNK.fullmatch(file.stem)
        if match is None or match["task"] not in NAMES:
            predictions.problem(SourceLocation(name), "", "no task of RULER; left out")
            continue
        cell = benchmark_facts.ruler_cell(match["task"], length_of(file))
        runs.setdefault(folder_of(name, LENGTH, "pred"), name)
        chunk = -1 if match["chunk"] is None else int(match["chunk"])
        cells.setdefault(cell, []).append((chunk, file, name))
    if not cells:
        raise EvalkitError(f"{path}: no file of a RULER task")
    one_run(path, runs)
    for cell, parts in cells.items():
        chunks = [chunk for chunk, _, _ in parts]
        if len(set(chunks)) < len(chunks) or (-1 in chunks and len(chunks) > 1):
            names = ", ".join(name for _, _, name in sorted(parts))
            raise EvalkitError(f"{path}: several files of {cell} ({names}): name one run's folder")
        if "@" not in cell:
            predictions.notes.append(
                f"the length of {cell} is not known: no folder is named after it"
            )
        for _, file, name in sorted(parts):
            _read_part(file, name, cell, predictions)
        predictions.lines[cell] = keyed(predictions.lines.get(cell, []))


def length_of(file: Path) -> int | None:
    """The nearest folder above a file that is named with a number."""
    names = (parent.name for parent in file.absolute().parents)
    return next((int(n) for n in names if re.fullmatch(LENGTH, n)), None)


def keyed(lines: list[Line]) -> list[Line]:
    """Predictions with their index as key, or without where it is none.

    A script of RULER wrote offsets in the text in its place; different samples then share one.
    """
    answers: dict[str | None, tuple[str, ...]] = {}
    for line in lines:
        if isinstance(line, Prediction):
            same = answers.setdefault(line.key, line.references) == line.references
            if line.key is None or not same:
                break
    else:
        return lines
    return [replace(line, key=None) if isinstance(line, Prediction) else line for line in lines]


def _read_part(file: Path, name: str, cell: str, predictions: PredictionSet) -> None:
    predictions.lines.setdefault(cell, [])
    for row in rows(file, name, predictions):
        predictions.take(row, cell, partial(_one, cell=cell))


def _one(row: FieldReader, cell: str) -> Prediction:
    task, _, length = cell.partition("@")
    index = row.optional_integer("index")
    answer = benchmark_facts.answer_of(row, "pred")
    meta = {"length": int(length)} if length else {}
    key = None if index is None else str(index)
    metric = benchmark_facts.ruler_metric(task)
    return benchmark_facts.prediction(
        cell, row, answer, row.texts("outputs"), metric, key, meta, gold="outputs"
    )


FORMAT = ImportFormat(read)
