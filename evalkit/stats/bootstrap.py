"""Paired bootstrap of the mean score difference between arms and a baseline.

Samples are drawn together for all arms (the pairing), whole clusters where samples share a
haystack, within strata (tasks) whose means count equally in the macro average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.inputs import (
    Labels,
    clusters_span_strata,
    pair,
    score_matrix,
    split,
)
from evalkit.stats.interval_method import IntervalMethod, PairedScores
from evalkit.stats.macro_bootstrap import Choices, draw, results
from evalkit.stats.result import SPANNING, PairedResult, join

METHODS = ("bca", "percentile", "studentized")


@dataclass(frozen=True, slots=True)
class ArmResults:
    """Results of several arms against one baseline, in the order of the arms.

    Attributes:
        overall: one per arm; over strata, the macro average. The baseline's own is all zeros.
        strata: the same within every stratum, by label; empty when no strata were given.
    """

    overall: tuple[PairedResult, ...]
    strata: dict[str, tuple[PairedResult, ...]]


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    *,
    strata: Labels | None = None,
    clusters: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10000,
    method: str = "bca",
    seed: int = 0,
) -> PairedResult:
    """Interval and p-value of mean(a) - mean(b) for scores of the same samples.

    Args:
        a: [n] scores of the arm, in [0, 1].
        b: [n] scores of the baseline on the same samples, in the same order.
        strata: [n] task of each sample. The estimate is then the unweighted mean over tasks of
            the task's mean difference, and resampling stays within tasks.
        clusters: [n] label of the haystack of each sample. Whole clusters are drawn (within
            their task); the estimate stays the mean over samples, a ratio when clusters differ
            in size. Unique labels (sample ids) make the result independent of sample order.
        confidence: nominal coverage of the two-sided interval.
        n_resamples: number of resamples B.
        method: ``"bca"`` (Efron 1987), ``"percentile"`` or ``"studentized"``.
        seed: the same seed gives the same result; no global random state is used.

    Defined answers to degenerate input: all differences equal within every task give the
    zero-width interval at delta; a task with a single sample or cluster says nothing about its
    own variation, so that task may lie anywhere in [-1, 1]. Both come with a caution.

    Raises:
        EvalkitError: lengths differ, scores outside [0, 1] or not finite, unknown method, or a
            confidence or number of resamples out of range.
    """
    return paired_bootstrap_arms(
        pair(a, b),
        0,
        strata=strata,
        clusters=clusters,
        confidence=confidence,
        n_resamples=n_resamples,
        method=method,
        seed=seed,
    ).overall[1]


def paired_bootstrap_arms(
    scores: ArrayLike,
    baseline: int,
    *,
    strata: Labels | None = None,
    clusters: Labels | None = None,
    keys: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10000,
    method: str = "bca",
    seed: int = 0,
) -> ArmResults:
    """`paired_bootstrap` of every arm against one, on one matrix of resamples.

    An arm's result is the same whatever other arms are there and in whatever order. The result
    of a stratum equals `paired_bootstrap` of its samples alone, given the same stratum label.

    Args:
        scores: [arms, n] scores of the same samples, in [0, 1].
        baseline: row of the baseline.
        keys: [n] sample ids; with them (or clusters) results do not depend on sample order.

    The other arguments and the errors are those of `paired_bootstrap`.
    """
    matrix = score_matrix(scores)
    _check(confidence, n_resamples, method)
    if not 0 <= baseline < len(matrix):
        raise EvalkitError(f"baseline {baseline}: there are {len(matrix)} arms")
    parts = split(matrix - matrix[baseline], strata, clusters, keys)
    draws = [draw(part, n_resamples, method, seed) for part in parts]
    choices = Choices(method, confidence, n_resamples)
    overall = results(parts, draws, choices)
    by_label: dict[str, tuple[PairedResult, ...]] = {}
    if strata is not None:
        for part, drawn in zip(parts, draws, strict=True):
            by_label[part.label] = results([part], [drawn], choices)
    if clusters_span_strata(strata, clusters):
        overall = tuple(replace(r, caution=join([r.caution, SPANNING])) for r in overall)
    return ArmResults(overall, by_label)


def _check(confidence: float, n_resamples: int, method: str) -> None:
    if method not in METHODS:
        raise EvalkitError(f"method {method!r}: known are {', '.join(METHODS)}")
    if not 0.0 < confidence < 1.0:
        raise EvalkitError(f"confidence {confidence} must lie between 0 and 1")
    if n_resamples < 1:
        raise EvalkitError(f"n_resamples {n_resamples} must be at least 1")


def _method(name: str) -> IntervalMethod:
    """`paired_bootstrap_arms` by one of its methods."""

    def arms(scores: PairedScores) -> ArmResults:
        return paired_bootstrap_arms(
            scores.matrix,
            scores.baseline,
            strata=scores.strata,
            clusters=scores.clusters,
            keys=scores.keys,
            confidence=scores.confidence,
            n_resamples=scores.n_resamples,
            method=name,
            seed=scores.seed,
        )

    return IntervalMethod(arms, resamples=True)


BCA, PERCENTILE, STUDENTIZED = map(_method, METHODS)
