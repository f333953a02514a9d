"""Results of kvpress: ``predictions.csv`` with a ``config.yaml`` beside it.

Rows of LongBench (``answers``), LongBench v2 (``choice_A``), RULER (``answer``, a list) and its
needle test (``needle``). Lists are printed by NumPy, without commas.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import yaml

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.data.records import MAX_LINE, SourceLocation
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.importers import longbench_v2
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet
from evalkit.tasks.longbench.facts import tasks
from evalkit.tasks.longbench.suites import cell
from evalkit.tasks.ruler.config import NAMES

WHAT = "results of kvpress (predictions.csv)"
RUN_FIELDS = ("model", "press_name", "compression_ratio", "key_channel_compression_ratio")
LISTS = ("answers", "all_classes")
_LITERAL = re.compile(r"""\s*,?\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL)


def read(path: Path, predictions: PredictionSet) -> None:
    """Read one csv, or all below a folder (a folder for every task or length).

    Raises:
        EvalkitError: there is none, or it cannot be read.
    """
    owner: dict[str, str] = {}
    files = files_of(path, "predictions.csv", WHAT)
    one_run(path, {run: name for file, name in files if (run := _run(file)) is not None})
    for file, name in files:
        length = _length(file)
        for row in _rows(file, name, predictions):
            try:
                record = _one(row, length)
            except BadField as error:
                predictions.problem(row.where, error.field, f"{error.message}; left out")
                _keep_place(row, length)
                continue
            if owner.setdefault(record.task, name) != name:
                both = f"{owner[record.task]} and {name}"
                raise EvalkitError(
                    f"{path}: {both} both have {record.task}: name the folder of one run"
                )
            predictions.add(record)


def texts(value: str, name: str) -> list[str]:
    """The texts of a printed list or NumPy array: ``['a', 'b']`` or ``['a' 'b']``."""
    inside = value.strip()
    if not (inside.startswith("[") and inside.endswith("]")):
        raise BadField(name, "not a printed list")
    inside, at, parts = inside[1:-1].rstrip(), 0, []
    while at < len(inside):
        match = _LITERAL.match(inside, at)
        if match is None:
            raise BadField(name, "not a printed list of texts")
        try:
            parts.append(str(ast.literal_eval(match[1].replace("\n", "\\n"))))
        except (SyntaxError, ValueError):
            raise BadField(name, "not a printed list of texts") from None
        at = match.end()
    return parts


def _rows(file: Path, name: str, predictions: PredictionSet) -> Iterator[FieldReader]:
    """The rows of a csv; one that cannot be parsed is noted."""
    try:
        with (
            _long_fields(),
            file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as f,
        ):
            lines = csv.reader(f)
            head = next(lines, [])
            if "predicted_answer" not in head:
                raise EvalkitError(f"{file}: no column predicted_answer in the first line")
            while True:
                where = SourceLocation(name, lines.line_num + 1)
                try:
                    cells = next(lines, None)
                except csv.Error as error:
                    predictions.problem(where, "", f"not CSV: {error}; left out")
                    continue
                if cells is None:
                    return
                if len(cells) != len(head):
                    text = f"{len(cells)} cells for {len(head)} columns; left out"
                    predictions.problem(where, "", text)
                    continue
                digest = hashlib.sha256(repr(cells).encode("utf-8", "surrogatepass")).hexdigest()
                data = dict(zip(head, cells, strict=True))
                yield FieldReader(data, where, predictions, digest=digest)
    except OSError as error:
        raise EvalkitError(f"{file}: cannot be read: {error.strerror or error}") from None


@contextmanager
def _long_fields() -> Iterator[None]:
    """Fields of any length the lines may have; Python's own limit is 131 072 characters."""
    before = csv.field_size_limit(MAX_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _one(row: FieldReader, length: int | None) -> Prediction:
    answer = benchmark_facts.answer_of(row, "predicted_answer")
    task = _task(row)
    if task == longbench_v2.ZERO_SHOT:
        return longbench_v2.one(task, row, answer)
    if task == "kamradt":
        return _needle(row, answer, length)
    if task in NAMES:
        cell = benchmark_facts.ruler_cell(task, length)
        references = tuple(texts(row.text("answer"), "answer"))
        meta = {} if length is None else {"length": length}
        metric = benchmark_facts.ruler_metric(task)
        return benchmark_facts.prediction(
            cell, row, answer, references, metric, None, meta, gold="answer"
        )
    base = benchmark_facts.longbench_base(_plain(task))
    if base is None:
        raise BadField("task", f"{task[:40]!r} is no task of LongBench or RULER")
    return _longbench(base, row, answer, e=_plain(task) != base)


def _plain(task: str) -> str:
    """kvpress writes ``qasper-e`` or ``qasper_e`` for LongBench-E."""
    return f"{task.removesuffix('-e')}_e" if task.endswith("-e") else task


def _task(row: FieldReader) -> str:
    if "choice_A" in row.data:
        return longbench_v2.ZERO_SHOT
    return "kamradt" if "needle" in row.data else row.text("task")


def _longbench(base: str, row: FieldReader, answer: str | None, *, e: bool) -> Prediction:
    data: dict[str, JsonValue] = {k: v for k, v in row.data.items() if k not in (*LISTS, "length")}
    for column in LISTS:
        if row.data.get(column, "") not in ("", "None"):
            data[column] = texts(row.text(column), column)
    words = str(row.data.get("length", ""))
    if re.fullmatch(r"\d{1,9}", words):
        data["length"] = int(words)
    fields = FieldReader(data, row.where, row.predictions, digest=row.digest)
    prediction = benchmark_facts.longbench(base, fields, answer, None, e=e)
    identity = row.data.get("_id")
    if not identity:
        return prediction
    meta = {**prediction.meta, "_id": str(identity)}
    return replace(prediction, alias=str(identity), meta=meta)


def _needle(row: FieldReader, answer: str | None, length: int | None) -> Prediction:
    text = row.text("needle_depth")
    try:
        depth = float(text)
    except ValueError:
        depth = -1.0
    if not 0 <= depth <= 100:
        raise BadField("needle_depth", f"{text[:20]!r}, not a percentage")
    references = benchmark_facts.needle_references(row.text("needle"), row)
    meta: JsonObject = {"depth": depth, **({} if length is None else {"length": length})}
    cell = benchmark_facts.ruler_cell("kamradt", length)
    key, metric = f"{depth:g}/1", "needle_phrases"
    prediction = benchmark_facts.prediction(
        cell, row, answer, references, metric, key, meta, gold="needle"
    )
    return replace(prediction, cluster=benchmark_facts.HAYSTACK)


def _length(file: Path) -> int | None:
    """The length of a run, from its configuration or from the name of its folder."""
    config = _configuration(file)
    parts = file.absolute().parent.name.split("__")
    named = parts if config is None else [config.get("data_dir"), config.get("max_context_length")]
    for value in named:
        if re.fullmatch(r"[1-9]\d{1,8}", str(value)):
            return int(str(value))
    return None


def _run(file: Path) -> str | None:
    """Model and press of a run, from its configuration or from the name of its folder.

    None where neither tells it.
    """
    config = _configuration(file)
    if config is None:
        parts = file.absolute().parent.name.split("__")
        return "__".join(parts[2:]) if len(parts) > 2 else None  # after data set and its length
    told = [f"{key} {config[key]}" for key in RUN_FIELDS if config.get(key) is not None]
    return ", ".join(told) or None


def _configuration(file: Path) -> dict[str, object] | None:
    """The configuration beside a table; None where it cannot be read."""
    try:
        config = yaml.safe_load((file.parent / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def _keep_place(row: FieldReader, length: int | None) -> None:
    """A row without usable gold keeps its position where its task can be told."""
    task = row.data.get("task", "")
    if task in NAMES:
        row.predictions.add_unusable(benchmark_facts.ruler_cell(task, length), row.where)
    elif task in tasks():
        row.predictions.add_unusable(cell(task), row.where)


FORMAT = ImportFormat(read)
