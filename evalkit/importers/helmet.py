"""Results of HELMET: ``<data set>_…_in<length>_size….json``, one file of a data set and length.

One JSON object with ``args`` and ``data``, a list of records: the sample (``answer``, ``question``,
``id`` or ``index``, ``depth``) with what the model said (``output``, and ``parsed_output`` behind
"Answer:"). What HELMET leaves to a judge is scored here by words; rankings and citations are not.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.data.records import SourceLocation
from evalkit.dsa.json_types import JsonValue
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of, folder_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.json_members import JsonMembers, json_members
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet
from evalkit.tasks.ruler.config import NAMES

WHAT = "HELMET's results (<data set>_…_in<length>_….json)"
_NAME = re.compile(r"(?P<data>.+?)_in(?P<length>[1-9]\d{0,8})_size.*")
_RULER = re.compile(r"ruler_(?P<task>niah_(?:s|mk)_\d|niah_m[qv]|vt|cwe|fwe|qa_\d)(?:_.*)?")
_SHORT = {"niah_s": "niah_single", "niah_mk": "niah_multikey"}
_SHORT |= {"niah_mq": "niah_multiquery", "niah_mv": "niah_multivalue"}


class _DataSet(NamedTuple):
    """How a data set of HELMET is scored here.

    Attributes:
        pattern: of its name in HELMET, at the beginning of a file's name.
        cell: its name here.
        metric: of its answers.
        said: field of the answer; ``parsed_output`` lacks the words that lead to it.
        judged: HELMET's own score where it is another one.
        shared: whether several of its questions may be about one text.
    """

    pattern: str
    cell: str
    metric: str
    said: str = "output"
    judged: str = ""
    shared: bool = False


_DATA_SETS = (
    _DataSet(r"json_kv", "json_kv", "substring_match"),
    *(
        _DataSet(rf"(kilt_)?{name}(_\d+)?", name, "substring_match")
        for name in ("nq", "triviaqa", "hotpotqa", "popqa")
    ),
    *(
        _DataSet(rf"icl_{name}_\d+shot(_balance)?", f"icl_{name}", "first_number", "parsed_output")
        for name in ("trec_coarse", "trec_fine", "banking77", "clinic150", "nlu")
    ),
    *(
        _DataSet(rf"{name}(_\d+)?", cell, metric, "parsed_output", judged, shared=True)
        for name, cell, metric, judged in (
            ("narrativeqa", "narrativeqa", "qa_f1", "judged by GPT-4"),
            ("infbench_qa_eng", "infbench_qa", "qa_f1", "ROUGE-L"),
            ("infbench_choice_eng", "infbench_choice", "option", ""),
        )
    ),
    *(
        _DataSet(rf"{name}(_\d+)?", cell, "rouge", judged="judged by GPT-4")
        for name, cell in (("infbench_sum_eng", "infbench_sum"), ("multi_lexsum", "multi_lexsum"))
    ),
)


def read(path: Path, predictions: PredictionSet) -> None:
    """Read the results of one model in a folder, or one file.

    Raises:
        EvalkitError: no data set is there that can be scored, files of several runs or two of one
            cell, or one that cannot be read.
    """
    owner: dict[str, str] = {}
    folders: dict[str, str] = {}
    models: dict[str, str] = {}
    for file, name in files_of(path, "*.json", WHAT):
        data_set, length = _data_set(PurePosixPath(name).stem)
        if data_set is None:
            text = "no data set of HELMET that is scored here; left out"
            predictions.problem(SourceLocation(name), "", text)
            continue
        with json_members(file, name, predictions) as content:
            if content is None:
                continue
            folders.setdefault(folder_of(name), name)
            one_run(path, folders)
            if model := _model(content):
                models.setdefault(model, name)
                one_run(path, models)
            cell = f"{data_set.cell}@{length}"
            if owner.setdefault(cell, name) != name:
                both = f"{owner[cell]} and {name}"
                raise EvalkitError(f"{path}: {both} both have {cell}: name the files of one run")
            _read_file(content, data_set, cell, length, predictions)
    if not owner:
        raise EvalkitError(f"{path}: no result of a data set that is scored here")


def _data_set(stem: str) -> tuple[_DataSet | None, int]:
    """The data set of a file, and its length."""
    match = _NAME.fullmatch(stem)
    if match is None or stem.endswith("-gpt4eval_o"):
        return None, 0
    length = int(match["length"])
    if ruler := _RULER.fullmatch(match["data"]):
        task = re.sub(r"niah_[a-z]+", lambda short: _SHORT[short[0]], ruler["task"])
        known = task in NAMES
        return (_DataSet("", task, benchmark_facts.ruler_metric(task)) if known else None), length
    matching = (d for d in _DATA_SETS if re.match(rf"{d.pattern}(_|$)", match["data"]))
    data_set = next(matching, None)
    return data_set and data_set._replace(cell=f"helmet/{data_set.cell}"), length


def _model(content: JsonMembers) -> str:
    """The model of a result; empty where it does not tell."""
    args = content.row("args") if "args" in content.keys else None
    return str(args.data.get("model_name_or_path") or "") if isinstance(args, FieldReader) else ""


def _read_file(
    content: JsonMembers, data_set: _DataSet, cell: str, length: int, predictions: PredictionSet
) -> None:
    if data_set.judged:
        predictions.notes.append(
            f"{cell} is scored by {data_set.metric}; HELMET: {data_set.judged}"
        )
    seen: Counter[str] = Counter()
    try:
        for row in content.rows("data"):
            read_one = partial(_one, data_set=data_set, cell=cell, length=length, seen=seen)
            predictions.take(row, cell, read_one)
    except BadField as error:
        predictions.problem(content.where, error.field, f"{error.message}; left out")


def _one(
    row: FieldReader, data_set: _DataSet, cell: str, length: int, seen: Counter[str]
) -> Prediction:
    question, depth = _question(row), row.data.get("depth")
    key = question if depth is None else f"{question}/{row.number('depth'):g}"
    seen[key] += 1
    if seen[key] > 1:  # HELMET's data name some questions twice
        key = f"{key}#{seen[key]}"
    said = data_set.said if row.data.get(data_set.said) is not None else "output"
    record = benchmark_facts.prediction(
        cell,
        row,
        benchmark_facts.answer_of(row, said),
        _gold(row),
        data_set.metric,
        key,
        {"length": length},
        gold="answer",
    )
    return replace(record, cluster=question, may_share=data_set.shared)


def _question(row: FieldReader) -> str:
    """The id of the record, else a digest of its question: HELMET shuffles its samples."""
    for name in ("index", "id", "qid"):
        value = row.data.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return row.text(name) if isinstance(value, str) else str(value)
    question = row.text("question") if row.data.get("question") else repr(_gold(row))
    return hashlib.sha256(question.encode()).hexdigest()[:16]


def _gold(row: FieldReader) -> tuple[str, ...]:
    """Gold answers: a text, a list of texts, or a list of lists of them."""
    value: JsonValue = row.value("answer")
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        flat = [text for item in value if isinstance(item, list) for text in item]
        return replace(row, data={"answer": flat}).texts("answer")
    return row.text_or_texts("answer")


FORMAT = ImportFormat(read)
