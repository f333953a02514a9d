"""The result of one paired comparison, and the cautions printed beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evalkit.stats.inputs import Stratum

SPANNING = "clusters span tasks: the macro interval treats tasks as independent"
FEW_UNITS = 20  # below this many degrees of freedom a bootstrap interval is too narrow


@dataclass(frozen=True, slots=True)
class PairedResult:
    """A paired difference of mean scores, arm minus baseline.

    Attributes:
        delta: the difference; the unweighted mean over strata where there are several.
        low: lower end of the two-sided interval.
        high: upper end.
        p_value: two-sided, of no difference; agrees with the interval, never 0.
        n: pairs of samples.
        n_clusters: resampling units (samples, or clusters of samples).
        method: how the interval was made.
        confidence: nominal coverage of the interval.
        caution: what a reader must know beside the interval, or None.
        n_differing: pairs whose scores differ; None where a result was not made from pairs.
    """

    delta: float
    low: float
    high: float
    p_value: float
    n: int
    n_clusters: int
    method: str
    confidence: float
    caution: str | None = None
    n_differing: int | None = None


@dataclass(frozen=True, slots=True)
class ArmResults:
    """Results of several arms against one baseline, in the order of the arms.

    Attributes:
        overall: one per arm; over strata, the macro average. The baseline's own is all zeros.
        strata: the same within every stratum, by label; empty when no strata were given.
    """

    overall: tuple[PairedResult, ...]
    strata: dict[str, tuple[PairedResult, ...]]


def differing(arm: int, parts: Sequence[Stratum]) -> int:
    """Pairs of one arm whose scores differ."""
    return int(sum(part.units.differing[arm] for part in parts))


def caution(parts: Sequence[Stratum], varies: Sequence[bool], *, bootstrap: bool) -> str | None:
    """One line on what weakens a result over the given strata, or None.

    Args:
        parts: the strata.
        varies: for each, whether the differences of this arm vary between units.
        bootstrap: whether the interval comes from resampling, which needs units that vary.
    """
    lone = [part for part in parts if part.units.count == 1]
    degrees = sum(part.units.count - 1 for part in parts)
    units = sum(part.units.count for part in parts)
    noun = "clusters" if any(part.units.clustered for part in parts) else "samples"
    notes = []
    if lone:
        what = "n = 1" if all(part.units.n == 1 for part in lone) else "one cluster"
        where = f" in {len(lone)} of {len(parts)} tasks" if len(parts) > 1 else ""
        notes.append(f"{what}{where}: spread unknown, any value in [-1, 1] is allowed for")
    if len(lone) < len(parts) and not any(varies):
        bound = 1.0 - 0.05 ** (1.0 / units)
        notes.append(
            f"all differences equal: up to {bound:.1%} of {noun} may still differ (95 % bound)"
        )
    elif bootstrap and 0 < degrees < FEW_UNITS:
        notes.append(f"only {units} {noun}: a bootstrap interval is too narrow")
    return "; ".join(notes) or None


def join(notes: Sequence[str | None]) -> str | None:
    """Several cautions as one line."""
    return "; ".join(dict.fromkeys(note for note in notes if note)) or None
