"""Predictions of OpenCompass on LongBench: ``LongBench_<task>.json`` of one model's folder.

One JSON object a file: by the number of the sample, an object with ``prediction`` and ``gold`` (the
answers, or an object of ``answers`` and ``all_classes``). A data set that was cut into parts is in
files ``LongBench_<task>_<part>.json``, each numbered from 0, in order.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.data.records import SourceLocation
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of, folder_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import whole
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet
from evalkit.tasks.longbench.suites import cell

WHAT = "OpenCompass' predictions (LongBench_<task>.json)"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_NAME = re.compile(r"LongBench_(?P<task>.+?)(?:_(?P<part>\d{1,4}))?")


def read(path: Path, predictions: PredictionSet) -> None:
    """Read the folder of a model, or the file of one task.

    Raises:
        EvalkitError: nothing of LongBench is there, files of several runs, or one that cannot be
            read.
    """
    parts: dict[str, list[tuple[int, Path, str]]] = {}
    runs: dict[str, str] = {}
    for file, name in files_of(path, "*.json", WHAT):
        match = _NAME.fullmatch(file.stem)
        base = None if match is None else benchmark_facts.longbench_base(match["task"])
        if match is None or base is None:
            predictions.problem(SourceLocation(name), "", "no task of LongBench; left out")
            continue
        runs.setdefault(folder_of(name), name)
        part = -1 if match["part"] is None else int(match["part"])
        parts.setdefault(base, []).append((part, file, name))
    if not parts:
        raise EvalkitError(f"{path}: no file of a LongBench task")
    one_run(path, runs)
    for base, files in parts.items():
        numbers = sorted(part for part, _, _ in files)
        if numbers not in ([-1], list(range(len(numbers)))):
            names = ", ".join(name for _, _, name in sorted(files))
            raise EvalkitError(
                f"{path}: the parts of {base} are not all there, or too many: {names}"
            )
        start = 0
        for _, file, name in sorted(files):
            count = _read_part(file, name, base, start, predictions)
            if not count and len(files) > 1:
                raise EvalkitError(
                    f"{path}: {name} has no usable record: where the next part begins is not known"
                )
            start += count


def _read_part(file: Path, name: str, base: str, start: int, predictions: PredictionSet) -> int:
    """Read one file; how many samples it is about."""
    content = whole(file, name, predictions)
    if not isinstance(content, FieldReader):
        return 0
    last = -1
    for number, record in _numbered(content):
        last = number
        row = FieldReader(_fields(record), content.where, predictions, f"{number}", _digest(record))
        predictions.take(row, cell(base), partial(_one, base=base, key=str(start + number)))
    return last + 1


def _one(row: FieldReader, base: str, key: str) -> Prediction:
    answer = benchmark_facts.answer_of(row, "prediction")
    return benchmark_facts.longbench(base, row, answer, key)


def _numbered(content: FieldReader) -> Iterator[tuple[int, JsonValue]]:
    """Records by their numbers, in order; a key that is none is noted."""
    for key in content.data:
        if not _NUMBER.fullmatch(key):
            content.predictions.problem(content.where, key[:40], "no number of a sample; left out")
    for number in sorted(int(key) for key in content.data if _NUMBER.fullmatch(key)):
        yield number, content.data[str(number)]


def _fields(record: JsonValue) -> JsonObject:
    """A record as LongBench's script would have written it."""
    data = record if isinstance(record, dict) else {}
    gold = data.get("gold")
    answers = gold if isinstance(gold, dict) else {"answers": gold}
    listed = answers.get("answers")
    return {
        "prediction": data.get("prediction"),
        "answers": [listed] if isinstance(listed, str) else listed,
        "all_classes": answers.get("all_classes"),
    }


def _digest(record: JsonValue) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


FORMAT = ImportFormat(read)
