"""The quality of the measured arms, out of the same run directory; or that there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.analysis.compare import RunComparison, compare_run
from evalkit.core.errors import EvalkitError
from evalkit.run.store import RunStore
from evalkit.stats import MACRO

NOT_EVALUATED = "NOT EVALUATED"


@dataclass(frozen=True, slots=True)
class Quality:
    """An arm's quality against the baseline.

    Attributes:
        verdict: ``baseline``, a verdict of the comparison, or ``NOT EVALUATED``.
        delta: macro average minus the baseline's, or None.
        low: of its interval.
        high: likewise.
        note: what must be known beside it, or why there is nothing.
    """

    verdict: str = NOT_EVALUATED
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


def qualities(
    store: RunStore, baseline: str, arms: Mapping[str, Mapping[str, Any]]
) -> dict[str, Quality]:
    """Quality of every arm as far as the run directory knows it.

    Args:
        store: run directory.
        baseline: name of the arm that the others are compared with.
        arms: measured arms: ``model`` and ``schedule`` (text) by name; results of another
            schedule under the same name do not count.
    """
    try:
        comparison = compare_run(store, baseline)
    except EvalkitError as error:
        return dict.fromkeys(arms, Quality(note=str(error)))
    return {name: _of(name, facts, baseline, comparison) for name, facts in arms.items()}


def _of(name: str, facts: Mapping[str, Any], baseline: str, comparison: RunComparison) -> Quality:
    entry = next((e for e in comparison.arms if e["name"] == name), None)
    if entry is None:
        return Quality(note="no such arm in the evaluation")
    evaluated = (entry.get("schedule") or {}).get("text")
    if evaluated != facts.get("schedule") or entry.get("model") != facts.get("model"):
        return Quality(note=f"the evaluated arm of this name is another one ({evaluated})")
    if name == baseline:
        return Quality("baseline")
    row = next((r for r in comparison.result.rows if (r.arm, r.task) == (name, MACRO)), None)
    if row is None or row.result is None:
        return Quality(note="no scores")
    notes = list(row.notes)
    if name in comparison.unfinished:
        answered, planned = comparison.unfinished[name]
        notes.append(f"{answered} of {planned} answers")
    said = str((entry.get("engagement") or {}).get("verdict", "unknown"))
    if not said.startswith("engaged"):
        notes.append(f"evaluated with the schedule {said}")
    result = row.result
    return Quality(str(row.verdict), result.delta, result.low, result.high, "; ".join(notes))
