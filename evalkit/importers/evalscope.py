"""Predictions and reviews of evalscope: ``predictions/<model>/<benchmark>_<subset>.jsonl`` and the
same below ``reviews``.

A prediction has ``index``, ``model_output`` and ``metadata``; its review has the gold (``target``)
and what was said (``sample_score``). Where both are there they are one record. Read are LongBench
v2, the needle test and MRCR.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.data.records import SourceLocation
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.importers import longbench_v2
from evalkit.importers.common import benchmark_facts
from evalkit.importers.common.files import files_of, folder_of, one_run
from evalkit.importers.common.format import ImportFormat
from evalkit.importers.common.jsonl import rows
from evalkit.importers.common.predictions import FieldReader, Prediction, PredictionSet

WHAT = "evalscope's predictions and reviews (<benchmark>_<subset>.jsonl)"
V2 = "longbench-v2/evalscope"
_TEXT = re.compile(r"<text>\n(?P<text>.*)\n</text>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A record of either file in one form.

    Attributes:
        row: the record.
        said: what the model said; None where that is not there.
        target: the gold; None in a prediction.
        metadata: of the sample.
    """

    row: FieldReader
    said: str | None
    target: str | None
    metadata: FieldReader


def read(path: Path, predictions: PredictionSet) -> None:
    """Read the folder of a run with one model, or one file.

    Raises:
        EvalkitError: no benchmark is there that is known here, files of several runs, or one that
            cannot be read.
    """
    runs: dict[str, str] = {}
    files: dict[str, list[tuple[Path, str]]] = {}
    for file, name in files_of(path, "*.jsonl", WHAT):
        if _benchmark(file.stem) is None:
            text = f"no benchmark of evalscope that is known here ({', '.join(_READERS)}); left out"
            predictions.problem(SourceLocation(name), "", text)
            continue
        runs.setdefault(folder_of(name, "predictions", "reviews"), name)
        files.setdefault(file.stem, []).append((file, name))
    if not files:
        raise EvalkitError(f"{path}: no file of {', '.join(_READERS)}")
    one_run(path, runs)
    for stem, of_subset in files.items():
        _read_subset(stem, of_subset, predictions)


def _benchmark(stem: str) -> tuple[str, str] | None:
    """Benchmark and subset of a file."""
    for name in _READERS:
        if stem.startswith(f"{name}_"):
            return name, stem.removeprefix(f"{name}_")
    return None


def _read_subset(stem: str, files: list[tuple[Path, str]], predictions: PredictionSet) -> None:
    """Read a subset: its reviews, and the predictions that have none."""
    name, subset = _benchmark(stem) or ("", "")
    reviewed: set[str] = set()
    reviews_first = sorted(files, key=lambda f: "reviews" not in PurePosixPath(f[1]).parts)
    for file, label in reviews_first:
        usable = []
        for row in rows(file, label, predictions):
            if not isinstance(row, FieldReader) or str(row.data.get("index")) in reviewed:
                continue
            try:
                predictions.add(_READERS[name](_answer(row), subset))
            except BadField as error:
                predictions.problem(row.where, error.field, f"{error.message}; left out")
            else:
                usable.append(str(row.data.get("index")))
        reviewed.update(usable)


def _answer(row: FieldReader) -> _Answer:
    if "sample_score" in row.data:
        scored = row.within("sample_score")
        said = benchmark_facts.answer_of(scored.within("score"), "prediction")
        metadata = _metadata(scored, "sample_metadata")
        return _Answer(row, said, row.text("target"), metadata)
    if "model_output" not in row.data:
        raise BadField("", "neither a prediction (model_output) nor a review (sample_score)")
    return _Answer(row, _said(row), None, _metadata(row, "metadata"))


def _metadata(row: FieldReader, name: str) -> FieldReader:
    return replace(row, data={}) if row.data.get(name) is None else row.within(name)


def _said(row: FieldReader) -> str | None:
    """The text of the first choice; None, noted, where there is none."""
    try:
        output = row.within("model_output")
        choices = output.value("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(first, dict):
            raise BadField(output.name("choices"), "no choice in it")
        message = replace(output, data=first, inside=output.name("choices[0]")).within("message")
        return _content(message)
    except BadField as error:
        row.predictions.problem(row.where, error.field, f"{error.message}; counted as an error")
        return None


def _content(message: FieldReader) -> str:
    """The text of a message: as it is, or the parts of it that are text, reasoning left out."""
    content = message.value("content")
    if not isinstance(content, list):
        return message.text("content")
    parts = (part for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "\n".join(replace(message, data=part).text("text") for part in parts)


def _longbench_v2(answer: _Answer, _subset: str) -> Prediction:
    """A question by its ``_id``; the letter is read where evalscope asks for it."""
    facts: dict[str, JsonValue] = {
        name: value for name, value in answer.metadata.data.items() if value != ""
    }
    data: JsonObject = {**facts, "answer": answer.target, "context": _document(answer.row.data)}
    fields = replace(answer.metadata, data=data)
    return replace(longbench_v2.one(V2, fields, answer.said), metric="choice_line")


def _document(record: Mapping[str, JsonValue]) -> str | None:
    """The text that was asked about, where the record has its messages."""
    for message in _objects(record.get("messages")):
        parts = message.get("content")
        texts = [parts] if isinstance(parts, str) else [p.get("text") for p in _objects(parts)]
        for text in texts:
            match = _TEXT.search(text) if isinstance(text, str) else None
            if match is not None:
                return match["text"]
    return None


def _objects(items: JsonValue) -> Iterator[JsonObject]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield item


def _needle(answer: _Answer, subset: str) -> Prediction:
    """A cell of the needle test's grid; the gold is the needle, which only a review has."""
    length, depth = (
        answer.metadata.integer("context_length"),
        answer.metadata.number("depth_percent"),
    )
    if length < 1 or not 0 <= depth <= 100:
        raise BadField(answer.metadata.name("context_length"), "with depth_percent, out of range")
    record = benchmark_facts.prediction(
        f"kamradt_{subset}@{length}",
        answer.row,
        answer.said,
        benchmark_facts.needle_references(_target(answer), answer.row),
        "needle_phrases",
        f"{depth:g}/1",
        {"length": length, "depth": depth},
        gold="target",
    )
    return replace(record, cluster=benchmark_facts.HAYSTACK)


def _mrcr(answer: _Answer, _subset: str) -> Prediction:
    """The answer must begin with a word that was asked for; the rest is compared."""
    prefix = answer.metadata.text("random_string_to_prepend")
    count = answer.metadata.integer("n_needles")
    gold = f"{prefix} {_target(answer).removeprefix(prefix)}"
    index = str(answer.row.integer("index"))
    return benchmark_facts.prediction(
        f"mrcr_{count}",
        answer.row,
        answer.said,
        (gold,),
        "prefixed_ratio",
        index,
        {},
        gold="target",
    )


def _target(answer: _Answer) -> str:
    if answer.target is None:
        raise BadField("target", "a prediction without its review, which has the gold")
    return answer.target


_READERS = {"longbench_v2": _longbench_v2, "needle_haystack": _needle, "openai_mrcr": _mrcr}

FORMAT = ImportFormat(read)
