"""Existing predictions of other harnesses as arms of a run directory. One file per format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import Registry, running
from evalkit.core.printable import name_problem
from evalkit.importers.common.format import ImportFormat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from evalkit.importers.common.import_report import ImportReport
    from evalkit.importers.common.predictions import PredictionSet
    from evalkit.run.store import RunStore

__all__ = ["FORMATS", "ImportFormat", "import_predictions"]

FORMATS = Registry(
    "format",
    ImportFormat,
    {
        "longbench": "evalkit.importers.longbench:FORMAT",
        "longbench_v2": "evalkit.importers.longbench_v2:FORMAT",
        "ruler": "evalkit.importers.ruler:FORMAT",
        "needle_kamradt": "evalkit.importers.needle_kamradt:FORMAT",
        "lm_eval": "evalkit.importers.lm_eval:FORMAT",
        "kvpress": "evalkit.importers.kvpress:FORMAT",
        "infinitebench": "evalkit.importers.infinitebench:FORMAT",
        "opencompass": "evalkit.importers.opencompass:FORMAT",
        "evalscope": "evalkit.importers.evalscope:FORMAT",
        "helmet": "evalkit.importers.helmet:FORMAT",
        "jsonl": "evalkit.importers.json_lines:FORMAT",
    },
    "evalkit.importers",
)


def import_predictions(
    format_: str,
    path: Path,
    arm: str,
    store: RunStore,
    *,
    allow_partial: bool = False,
    phrases: Sequence[str] = (),
    fields: Mapping[str, str] | None = None,
    metric: str = "",
) -> ImportReport:
    """Add predictions as an arm to a run directory, which is made if absent; all or nothing.

    Bad records are left out and named in the report. Records without ids are joined with the
    samples of the pinned data or of the run by answers and length; with neither, their order is
    that of the samples.

    Args:
        format_: one of `FORMATS`.
        path: folder or file in that format.
        arm: name of the arm.
        store: the run directory; it is locked meanwhile.
        allow_partial: take an arm that has not the same samples as the others, without the tasks
            whose lines cannot be joined.
        phrases: what an answer must hold where the needle is not that of the first needle test.
        fields: names of the fields of a plain JSONL, by ours (``prediction``, ``references``,
            ``id``, ``task``, ``cluster``, ``length``, ``all_classes``).
        metric: of its answers.

    Raises:
        EvalkitError: unknown format, nothing to import, an arm of that name with other content,
            answers that disagree with those of the run or unequal coverage without the flag,
            phrases for results without a needle, fields for a format that has its own, or the
            format's package has a fault.
    """
    from evalkit.importers.common.add_arm import add_arm
    from evalkit.importers.common.predictions import PredictionSet

    format_record = FORMATS[format_]
    _check_arguments(arm, phrases)
    if (fields or metric) and not format_record.mapped:
        raise EvalkitError(f"--field and --metric are not for {format_}, which has its own")
    predictions = PredictionSet(phrases=tuple(phrases), fields=dict(fields or {}), metric=metric)
    with running(FORMATS.package(format_)):
        format_record.read(path, predictions)
    if not any(predictions.lines.values()) and not predictions.without_gold:
        raise EvalkitError(f"{path}: no record in it{_first(predictions)}")
    if phrases and not _has_needle(predictions):
        raise EvalkitError(f"{path}: no needle in it that key phrases could be of")
    with store.lock():
        return add_arm(
            format_,
            path.name,
            arm,
            store,
            predictions,
            allow_partial=allow_partial,
            packages=FORMATS.packages([format_]),
        )


def _check_arguments(arm: str, phrases: Sequence[str]) -> None:
    if problem := name_problem(arm):
        raise EvalkitError(f"--arm: {problem}")
    if any(not phrase.strip() for phrase in phrases):
        raise EvalkitError("a key phrase is empty")


def _has_needle(predictions: PredictionSet) -> bool:
    lines = (line for lines in predictions.lines.values() for line in lines)
    return any(getattr(line, "metric", "") == "needle_phrases" for line in lines)


def _first(predictions: PredictionSet) -> str:
    problems = predictions.problems
    if not problems:
        return ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f": {problems[0]}{more}"
