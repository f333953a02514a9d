"""Paired differences by any method, and the method that the coverage table supports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import Registry
from evalkit.stats.bootstrap import ArmResults
from evalkit.stats.closed_form_intervals import critical_z
from evalkit.stats.inputs import (
    Labels,
    Stratum,
    clusters_span_strata,
    pair,
    score_matrix,
)
from evalkit.stats.interval_method import IntervalMethod, PairedScores
from evalkit.stats.result import SPANNING, PairedResult, join
from evalkit.stats.score_interval import closed_form_arms

METHODS = Registry(
    "interval method",
    IntervalMethod,
    {
        "auto": "evalkit.stats.methods:AUTO",
        "score": "evalkit.stats.score_interval:SCORE",
        "t": "evalkit.stats.score_interval:T",
        "newcombe": "evalkit.stats.newcombe:NEWCOMBE",
        "percentile": "evalkit.stats.bootstrap:PERCENTILE",
        "bca": "evalkit.stats.bootstrap:BCA",
        "studentized": "evalkit.stats.bootstrap:STUDENTIZED",
    },
)

# What docs/statistics.md's coverage table supports, by situation.
DEFAULT_METHODS = {
    "right/wrong scores": "score",
    "graded scores": "score",
    "clusters": "score",
    "macro average": "score",
}


def default_method(situation: str) -> str:
    """The method that the coverage table in docs/statistics.md supports for a situation.

    Args:
        situation: ``"right/wrong scores"``, ``"graded scores"``, ``"clusters"`` (samples share
            haystacks) or ``"macro average"``.

    Raises:
        EvalkitError: another situation.
    """
    try:
        return DEFAULT_METHODS[situation]
    except KeyError:
        known = ", ".join(DEFAULT_METHODS)
        raise EvalkitError(f"situation {situation!r}: known are {known}") from None


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    strata: Labels | None = None,
    clusters: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10000,
    method: str = "auto",
    seed: int = 0,
) -> PairedResult:
    """Interval and p-value of mean(a) - mean(b), as `paired_bootstrap` but by any method.

    Args:
        method: a name of `METHODS`; ``"auto"`` takes `default_method`, ``"newcombe"`` only
            right/wrong scores without clusters.

    The other arguments and the errors are those of `paired_bootstrap`.
    """
    return paired_arms(
        pair(a, b),
        0,
        strata=strata,
        clusters=clusters,
        confidence=confidence,
        n_resamples=n_resamples,
        method=method,
        seed=seed,
    ).overall[1]


def paired_arms(
    scores: ArrayLike,
    baseline: int,
    *,
    strata: Labels | None = None,
    clusters: Labels | None = None,
    keys: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10000,
    method: str = "auto",
    seed: int = 0,
) -> ArmResults:
    """`paired_difference` of every arm against one; see `paired_bootstrap_arms`."""
    chosen = METHODS[method]
    critical_z(confidence)
    matrix = score_matrix(scores)
    if not 0 <= baseline < len(matrix):
        raise EvalkitError(f"baseline {baseline}: there are {len(matrix)} arms")
    results = chosen.arms(
        PairedScores(
            matrix,
            baseline,
            strata=strata,
            clusters=clusters,
            keys=keys,
            confidence=confidence,
            n_resamples=n_resamples,
            seed=seed,
        )
    )
    if clusters_span_strata(strata, clusters):
        overall = tuple(replace(r, caution=join([r.caution, SPANNING])) for r in results.overall)
        return replace(results, overall=overall)
    return results


def situation(arm: int, parts: Sequence[Stratum]) -> str:
    """The situation of one arm over some strata, a key of `DEFAULT_METHODS`."""
    if any(part.units.clustered for part in parts):
        return "clusters"
    if len(parts) > 1:
        return "macro average"
    units = parts[0].units
    steps = abs(units.gains[arm] + units.losses[arm] - units.squares[arm])
    return "right/wrong scores" if steps < 1e-12 else "graded scores"


AUTO = IntervalMethod(
    lambda scores: closed_form_arms(
        scores, lambda arm, parts: default_method(situation(arm, parts))
    )
)
