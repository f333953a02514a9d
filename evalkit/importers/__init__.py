"""Existing predictions of other harnesses as arms of a run directory. One file per format."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.importers import kvpress, lm_eval, longbench, longbench_v2, needle_kamradt, ruler
from evalkit.importers.common.add_arm import add_arm
from evalkit.importers.common.import_report import ImportReport, TaskImport
from evalkit.importers.common.records import Problem, Reading
from evalkit.run.store import RunStore

__all__ = ["FORMATS", "ImportReport", "Problem", "TaskImport", "import_predictions"]

FORMATS: dict[str, Callable[[Path, Reading], None]] = {
    "longbench": longbench.read,
    "longbench_v2": longbench_v2.read,
    "ruler": ruler.read,
    "needle_kamradt": needle_kamradt.read,
    "lm_eval": lm_eval.read,
    "kvpress": kvpress.read,
}


def import_predictions(
    format_: str, path: Path, arm: str, store: RunStore, *, allow_partial: bool = False
) -> ImportReport:
    """Add predictions as an arm to a run directory, which is made if absent; all or nothing.

    BadField records are left out and named in the report. Records without ids are joined with
    the samples of the run by position, after a check that the answers agree line by line.

    Args:
        format_: one of `FORMATS`.
        path: folder or file in that format.
        arm: name of the arm.
        store: the run directory; it is locked meanwhile.
        allow_partial: take an arm that has not the same samples as the others.

    Raises:
        EvalkitError: unknown format, nothing to import, an arm of that name with other content,
            answers that disagree with those of the run, or unequal coverage without the flag.
    """
    if format_ not in FORMATS:
        near = difflib.get_close_matches(format_, FORMATS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(FORMATS)}"
        raise EvalkitError(f"unknown format {format_}; {hint}")
    if not arm.strip():
        raise EvalkitError("an arm needs a name")
    reading = Reading()
    FORMATS[format_](path, reading)
    if not any(reading.slots.values()):
        raise EvalkitError(f"{path}: no record in it{_first(reading)}")
    with store.lock():
        return add_arm(format_, path.name, arm, store, reading, allow_partial=allow_partial)


def _first(reading: Reading) -> str:
    problems = reading.problems
    if not problems:
        return ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f": {problems[0]}{more}"
