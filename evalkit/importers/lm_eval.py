"""Sample logs of lm-evaluation-harness: ``samples_<task>_<date>.jsonl``.

The tasks of its LongBench and RULER groups, whose gold we can score again. The raw response is
taken, not the filtered one; with several filters a document occurs more than once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from evalkit.core.errors import EvalkitError
from evalkit.core.files import read_object
from evalkit.core.json_fields import BadField, kind
from evalkit.data.records import SourceLocation
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of, folder_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet
from evalkit.tasks.ruler.config import NAMES

WHAT = "sample logs (samples_<task>_<date>.jsonl)"
RULER_TASKS = {
    **{name: name for name in NAMES if name.startswith("niah")},
    "ruler_vt": "vt",
    "ruler_cwe": "cwe",
    "ruler_fwe": "fwe",
    "ruler_qa_squad": "qa_1",
    "ruler_qa_hotpot": "qa_2",
}
_LOG = re.compile(r"samples_(?P<task>.+)_(?P<date>[^_]+)")


class _Log(NamedTuple):
    """A sample log."""

    date: str
    task: str
    file: Path
    name: str


def read(path: Path, predictions: PredictionSet) -> None:
    """Read one log, or the logs of one model in a folder: of every cell the newest.

    Raises:
        EvalkitError: there is none of a task that we can score, they are of several models, or a
            file cannot be read.
    """
    logs: list[_Log] = []
    for file, name in files_of(path, "samples_*.jsonl", WHAT):
        match = _LOG.fullmatch(file.stem)
        task = match["task"] if match else ""
        if match is None or not known(task):
            predictions.problem(
                SourceLocation(name), "", f"no metric of ours for the task {task!r}; left out"
            )
            continue
        logs.append(_Log(match["date"], task, file, name))
    if not logs:
        raise EvalkitError(f"{path}: no sample log of a LongBench or RULER task")
    one_run(path, {folder_of(log.name): log.name for log in reversed(logs)})
    one_run(path, {model: log.name for log in logs if (model := _model(log)) is not None})
    owner: dict[str, _Log] = {}
    for log in sorted(logs, key=lambda log: log.date, reverse=True):
        _read_log(log, owner, predictions)


def _read_log(log: _Log, owner: dict[str, _Log], predictions: PredictionSet) -> None:
    """Take the cells of a log that no newer one of the same task has."""
    older: dict[str, str] = {}
    for row in rows(log.file, log.name, predictions):
        if not isinstance(row, FieldReader):
            continue
        try:
            prediction = _one(log.task, row)
        except BadField as error:
            predictions.problem(row.where, error.field, f"{error.message}; left out")
            continue
        newest = owner.setdefault(prediction.task, log)
        if newest is log:
            predictions.add(prediction)
        else:
            older[prediction.task] = newest.name
    for cell, newer in older.items():
        predictions.notes.append(f"{cell} of {log.name} is left out: {newer} is newer")


def _model(log: _Log) -> str | None:
    """The model that the results written with a log name; None where there are none."""
    try:
        results = read_object(log.file.with_name(f"results_{log.date}.json"))
    except (FileNotFoundError, EvalkitError, RecursionError):
        return None
    model = results.get("model_name")
    return model if isinstance(model, str) else None


def known(task: str) -> bool:
    """Whether the gold of a task can be read and scored."""
    return task in RULER_TASKS or _longbench(task) is not None


def _longbench(task: str) -> str | None:
    name = task.removeprefix("longbench_")
    return benchmark_facts.longbench_base(name) if name != task else None


def _one(task: str, row: FieldReader) -> Prediction:
    key = str(row.integer("doc_id"))
    doc = row.within("doc")
    answer = _response(row)
    base = _longbench(task)
    if base is not None:
        e = task.endswith("_e")  # positions within a length bin; doc_id runs over all
        return benchmark_facts.longbench(base, doc, answer, None if e else key, e=e)
    ruler = RULER_TASKS[task]
    length = doc.optional_integer("max_length")
    return benchmark_facts.prediction(
        benchmark_facts.ruler_cell(ruler, length),
        doc,
        answer,
        doc.texts("outputs"),
        benchmark_facts.ruler_metric(ruler),
        key,
        {} if length is None else {"length": length},
        gold="outputs",
    )


def _response(row: FieldReader) -> str | None:
    """The first text of the first request; None, with a problem noted, where there is none."""
    try:
        value = row.value("resps")
        for _ in range(2):
            if not isinstance(value, list) or not value:
                raise BadField("resps", "not a list of lists of texts")
            value = value[0]
        if not isinstance(value, str):
            raise BadField("resps", f"{kind(value)}, not a generated text")
        return FieldReader({"resps": value}, row.where, row.predictions).text("resps")
    except BadField as error:
        row.predictions.problem(row.where, error.field, f"{error.message}; counted as an error")
        return None


FORMAT = ImportFormat(read)
