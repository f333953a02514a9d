"""Predictions of OpenCompass: ``<data set>.json`` in the folder of a model.

LongBench (``LongBench_<task>``), LongBench v2 (``LongBenchv2``), RULER (``ruler_<task>_<length>``),
the single needles of NeedleBench (``Length<n>Depth<d>_origin_<language>_<range>``) and
InfiniteBench (``InfiniteBench_<task>``). One JSON object a file: by the number of the sample, an
object with ``prediction`` and ``gold``. A data set that was cut into parts is in files
``<data set>_<part>.json``, each numbered from 0, in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.data.records import SourceLocation
from evalkit.dsa.json_types import JsonObject
from evalkit.importers import infinitebench, longbench_v2
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.clusters import pinned_questions
from evalkit.importers.common.files import files_of, folder_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.json_members import json_members
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet
from evalkit.tasks.longbench.suites import cell as longbench_cell
from evalkit.tasks.ruler.config import NAMES

WHAT = "OpenCompass' predictions (<data set>.json)"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_PART = re.compile(r"(?P<data>.+)_(?P<part>\d{1,4})")
_RULER = re.compile(r"ruler_(?P<task>.+)_(?P<length>[1-9]\d{0,3})(?P<unit>[km])")
_RULER_NAMES = {"qa_squad": "qa_1", "qa_hotpotqa": "qa_2"}
_NEEDLE = re.compile(
    r"Length(?P<length>[1-9]\d{0,8})Depth(?P<depth>\d{1,3})_origin_(?P<kind>[a-z]{2}_\d+k)"
)
_INFINITEBENCH = {
    "retrievepasskey": "passkey",
    "retrievenumber": "number_string",
    "retrievekv": "kv_retrieval",
    "endia": "longdialogue_qa_eng",
    "enqa": "longbook_qa_eng",
    "zhqa": "longbook_qa_chn",
    "enmc": "longbook_choice_eng",
    "ensum": "longbook_sum_eng",
    "mathfind": "math_find",
    "mathcalc": "math_calc",
    "coderun": "code_run",
    "codedebug": "code_debug",
}


class _DataSet(NamedTuple):
    """A data set of OpenCompass.

    Attributes:
        cell: that its predictions belong to.
        one: makes a prediction of a record and its ``number``.
    """

    cell: str
    one: Callable[..., Prediction]


def read(path: Path, predictions: PredictionSet) -> None:
    """Read the folder of a model, or the file of one data set.

    Raises:
        EvalkitError: nothing that is known is there, files of several runs, or one that cannot be
            read.
    """
    data_sets: dict[str, _DataSet] = {}
    parts: dict[str, list[tuple[int, Path, str]]] = {}
    runs: dict[str, str] = {}
    for file, name in files_of(path, "*.json", WHAT):
        data, part, data_set = file.stem, -1, _data_set(file.stem)
        if data_set is None and (cut := _PART.fullmatch(file.stem)):
            data, part, data_set = cut["data"], int(cut["part"]), _data_set(cut["data"])
        if data_set is None:
            text = "no data set of OpenCompass that is known here; left out"
            predictions.problem(SourceLocation(name), "", text)
            continue
        runs.setdefault(folder_of(name), name)
        data_sets[data] = data_set
        parts.setdefault(data, []).append((part, file, name))
    if not parts:
        raise EvalkitError(
            f"{path}: no file of LongBench, LongBench v2, RULER, NeedleBench or InfiniteBench"
        )
    one_run(path, runs)
    for data, files in parts.items():
        _check_parts(path, data, sorted(files))
        _read_data_set(path, data_sets[data], sorted(files), predictions)


def _check_parts(path: Path, data: str, files: list[tuple[int, Path, str]]) -> None:
    if [part for part, _, _ in files] not in ([-1], list(range(len(files)))):
        names = ", ".join(name for _, _, name in files)
        raise EvalkitError(f"{path}: the parts of {data} are not all there, or too many: {names}")


def _read_data_set(
    path: Path,
    data_set: _DataSet,
    files: list[tuple[int, Path, str]],
    predictions: PredictionSet,
) -> None:
    """Read the parts of a data set, each of which begins where the one before it ended."""
    start = 0
    for _, file, name in files:
        count = _read_part(file, name, data_set, start, predictions)
        if not count and len(files) > 1:
            raise EvalkitError(
                f"{path}: {name} has no usable record: where the next part begins is not known"
            )
        start += count


def _read_part(
    file: Path, name: str, data_set: _DataSet, start: int, predictions: PredictionSet
) -> int:
    """Read one file; how many samples it is about."""
    cell, one = data_set
    with json_members(file, name, predictions) as content:
        if content is None:
            return 0
        for key in content.keys:
            if not _NUMBER.fullmatch(key):
                predictions.problem(content.where, key[:40], "no number of a sample; left out")
        numbers = sorted(int(key) for key in content.keys if _NUMBER.fullmatch(key))
        for number in numbers:
            row = content.row(str(number))
            predictions.take(row, cell, partial(one, number=start + number))
    return numbers[-1] + 1 if numbers else 0


def _data_set(name: str) -> _DataSet | None:
    """The data set of a file without its part; None: no file of one that is known here."""
    base = name.removeprefix("LongBench_")
    if base != name and benchmark_facts.longbench_base(base) == base:
        return _DataSet(longbench_cell(base), partial(_longbench, base))
    if name == "LongBenchv2":
        return _DataSet(longbench_v2.ZERO_SHOT, _longbench_v2)
    task = _INFINITEBENCH.get(name.removeprefix("InfiniteBench_"))
    if task is not None:
        return _DataSet(
            infinitebench.cell(task),
            partial(_infinitebench, task),
        )
    if match := _NEEDLE.fullmatch(name):
        place = int(match["length"]), int(match["depth"])
        needle = f"needlebench_{match['kind']}@{place[0]}"
        return _DataSet(needle, partial(_needle, needle, place))
    return _ruler(name)


def _ruler(name: str) -> _DataSet | None:
    match = _RULER.fullmatch(name)
    task = "" if match is None else _RULER_NAMES.get(match["task"], match["task"])
    if match is None or task not in NAMES:
        return None
    length = int(match["length"]) * (2**10 if match["unit"] == "k" else 2**20)
    return _DataSet(benchmark_facts.ruler_cell(task, length), partial(_ruler_one, task, length))


def _ruler_one(task: str, length: int, row: FieldReader, number: int) -> Prediction:
    return benchmark_facts.prediction(
        benchmark_facts.ruler_cell(task, length),
        row,
        benchmark_facts.answer_of(row, "prediction"),
        row.text_or_texts("gold"),
        benchmark_facts.ruler_metric(task),
        str(number),
        {"length": length},
        gold="gold",
    )


def _longbench(base: str, row: FieldReader, number: int) -> Prediction:
    """A record as LongBench's script would have written it."""
    gold = row.data.get("gold")
    answers = gold if isinstance(gold, dict) else {"answers": gold}
    listed = answers.get("answers")
    data: JsonObject = {
        "prediction": row.data.get("prediction"),
        "answers": [listed] if isinstance(listed, str) else listed,
        "all_classes": answers.get("all_classes"),
    }
    fields = replace(row, data=data)
    answer = benchmark_facts.answer_of(fields, "prediction")
    return benchmark_facts.longbench(base, fields, answer, str(number))


def _longbench_v2(row: FieldReader, number: int) -> Prediction:
    """A question by its number, which the pinned data make its id where they are here."""
    pinned = pinned_questions()
    gold = row.text("gold")
    known = number < len(pinned) and pinned[number].answer == gold
    facts: JsonObject = {"_id": pinned[number].id, **pinned[number].facets} if known else {}
    fields = replace(row, data={"_id": str(number), "answer": gold, **facts})
    answer = benchmark_facts.answer_of(row, "prediction")
    return longbench_v2.one(longbench_v2.ZERO_SHOT, fields, answer)


def _infinitebench(task: str, row: FieldReader, number: int) -> Prediction:
    return infinitebench.one(task, row, "prediction", "gold", str(number))


def _needle(task: str, place: tuple[int, int], row: FieldReader, number: int) -> Prediction:
    """Gold is the needle, a star and its key word; all depths are read in the text of a number."""
    length, depth = place
    _, star, keyword = row.text("gold").rpartition("*")
    if not star or not keyword.strip():
        raise BadField(row.name("gold"), "no needle with a key word behind a star")
    record = benchmark_facts.prediction(
        task,
        row,
        benchmark_facts.answer_of(row, "prediction"),
        (keyword,),
        "ruler_part",
        f"{depth}/{number}",
        {"length": length, "depth": depth},
        gold="gold",
    )
    return replace(record, cluster=f"{benchmark_facts.HAYSTACK} {number}")


FORMAT = ImportFormat(read)
