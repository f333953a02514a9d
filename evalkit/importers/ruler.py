"""Predictions of RULER's own scripts: folders of ``<task>.jsonl``, one for each length.

Fields ``index``, ``pred``, ``outputs``; the length is the folder's name, as in
``<model>/synthetic/4096/pred``. Chunks ``<task>-<n>.jsonl`` are put together.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.data.records import BadField
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import found
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows
from evalkit.importers.common.records import Hole, Reading, Record, Row, Where
from evalkit.tasks.ruler.config import NAMES

WHAT = "RULER's predictions (<task>.jsonl)"
_CHUNK = re.compile(r"(?P<task>.+?)(?:-(?P<chunk>\d{1,6}))?")


def read(path: Path, reading: Reading) -> None:
    """Read a folder of one length or of several, or one file.

    Raises:
        EvalkitError: nothing of RULER is there, or a file cannot be read.
    """
    cells: dict[str, list[tuple[int, Path, str]]] = {}
    for file, name in found(path, "*.jsonl", WHAT):
        match = _CHUNK.fullmatch(file.stem)
        if match is None or match["task"] not in NAMES:
            reading.problem(Where(name), "", "no task of RULER; left out")
            continue
        cell = benchmark_facts.ruler_cell(match["task"], length_of(file))
        chunk = -1 if match["chunk"] is None else int(match["chunk"])
        cells.setdefault(cell, []).append((chunk, file, name))
    if not cells:
        raise EvalkitError(f"{path}: no file of a RULER task")
    for cell, parts in cells.items():
        chunks = [chunk for chunk, _, _ in parts]
        if len(set(chunks)) < len(chunks) or (-1 in chunks and len(chunks) > 1):
            names = ", ".join(name for _, _, name in sorted(parts))
            raise EvalkitError(f"{path}: several files of {cell} ({names}): name one run's folder")
        if "@" not in cell:
            reading.notes.append(f"the length of {cell} is not known: no folder is named after it")
        for _, file, name in sorted(parts):
            _read_part(file, name, cell, reading)
        reading.slots[cell] = keyed(reading.slots.get(cell, []))


def length_of(file: Path) -> int | None:
    """The nearest folder above a file that is named with a number."""
    names = (parent.name for parent in file.absolute().parents)
    return next((int(n) for n in names if re.fullmatch(r"[1-9]\d{1,8}", n)), None)


def keyed(slots: list[Record | Hole]) -> list[Record | Hole]:
    """Records with their index as key, or without where it is none.

    A script of RULER wrote offsets in the text in its place; different samples then share one.
    """
    answers: dict[str | None, tuple[str, ...]] = {}
    for slot in slots:
        if isinstance(slot, Record):
            same = answers.setdefault(slot.key, slot.references) == slot.references
            if slot.key is None or not same:
                break
    else:
        return slots
    return [replace(slot, key=None) if isinstance(slot, Record) else slot for slot in slots]


def _read_part(file: Path, name: str, cell: str, reading: Reading) -> None:
    reading.slots.setdefault(cell, [])
    for row in rows(file, name, reading):
        if not isinstance(row, Row):
            reading.hole(cell, row)
            continue
        try:
            reading.add(_one(row, cell))
        except BadField as error:
            reading.problem(row.where, error.field, f"{error.message}; left out")
            reading.hole(cell, row.where)


def _one(row: Row, cell: str) -> Record:
    task, _, length = cell.partition("@")
    index = row.optional_integer("index")
    prediction = benchmark_facts.prediction_of(row, "pred")
    meta = {"length": int(length)} if length else {}
    key = None if index is None else str(index)
    metric = benchmark_facts.ruler_metric(task)
    return benchmark_facts.record(
        cell, row, prediction, row.texts("outputs"), metric, key, meta, gold="outputs"
    )


FORMAT = ImportFormat(read)
