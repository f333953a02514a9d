"""Quality of the measured arms, from the same run directory; or NOT EVALUATED."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evalkit.analysis.compare import RunComparison, compare_run
from evalkit.core.errors import EvalkitError
from evalkit.run.store import RunStore
from evalkit.stats import MACRO

NOT_EVALUATED = "NOT EVALUATED"


@dataclass(frozen=True, slots=True)
class MeasuredArm:
    """What makes a measured arm the same as an evaluated one.

    Attributes:
        model: its checkpoint.
        schedule: as text; None for a model without indexers.
    """

    model: str
    schedule: str | None


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


@dataclass(frozen=True, slots=True)
class ArmIdentity:
    """What a measured arm ran: results of another checkpoint or schedule are not its own.

    Attributes:
        model: checkpoint.
        schedule: as text, or None for a model without indexers.
    """

    model: str
    schedule: str | None


def qualities(
    store: RunStore, baseline: str, arms: Mapping[str, ArmIdentity]
) -> dict[str, Quality]:
    """Quality of every arm as far as the run directory knows it.

    Args:
        store: run directory.
        baseline: name of the arm that the others are compared with.
        arms: measured arms by name.
    """
    try:
        comparison = compare_run(store, baseline)
    except EvalkitError as error:
        return dict.fromkeys(arms, Quality(note=str(error)))
    return {name: _quality(name, arm, baseline, comparison) for name, arm in arms.items()}


def _quality(name: str, arm: ArmIdentity, baseline: str, comparison: RunComparison) -> Quality:
    entry = next((entry for entry in comparison.arms if entry.name == name), None)
    if entry is None:
        return Quality(note="no such arm in the evaluation")
    evaluated = entry.acts_text
    if evaluated != arm.schedule or entry.model != arm.model:
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
    engagement = entry.engagement or "unknown"
    if not engagement.startswith("engaged"):
        notes.append(f"evaluated with the schedule {engagement}")
    result = row.result
    return Quality(str(row.verdict), result.delta, result.low, result.high, "; ".join(notes))
