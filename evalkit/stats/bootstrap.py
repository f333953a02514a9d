"""Paired bootstrap of the mean score difference between arms and a baseline.

Samples are drawn together for all arms (the pairing), whole clusters where samples share a
haystack, within strata (tasks) whose means count equally in the macro average.
"""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.design import Design, IntervalOptions
from evalkit.stats.inputs import Labels, pair, score_matrix
from evalkit.stats.interval_method import IntervalMethod, PairedScores
from evalkit.stats.macro_bootstrap import draw, results
from evalkit.stats.result import SPANNING, ArmResults, PairedResult, join

METHODS = ("bca", "percentile", "studentized")


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
    options = IntervalOptions(method, confidence, n_resamples, seed)
    return paired_bootstrap_arms(pair(a, b), 0, Design(strata, clusters), options).overall[1]


def paired_bootstrap_arms(
    scores: ArrayLike,
    baseline: int,
    design: Design | None = None,
    options: IntervalOptions | None = None,
) -> ArmResults:
    """`paired_bootstrap` of every arm against one, on one matrix of resamples.

    An arm's result is the same whatever other arms are there and in whatever order. The result
    of a stratum equals `paired_bootstrap` of its samples alone, given the same stratum label.

    Args:
        scores: [arms, n] scores of the same samples, in [0, 1].
        baseline: row of the baseline.
        design: grouping of the samples; default: none.
        options: default: BCa, 95 %, 10,000 resamples, seed 0.

    The errors are those of `paired_bootstrap`.
    """
    design, options = design or Design(), options or IntervalOptions("bca")
    matrix = score_matrix(scores)
    if options.method not in METHODS:
        raise EvalkitError(f"method {options.method!r}: known are {', '.join(METHODS)}")
    options.check()
    if not 0 <= baseline < len(matrix):
        raise EvalkitError(f"baseline {baseline}: there are {len(matrix)} arms")
    parts = design.split(matrix - matrix[baseline])
    draws = [draw(part, options) for part in parts]
    overall = results(parts, draws, options)
    by_label: dict[str, tuple[PairedResult, ...]] = {}
    if design.strata is not None:
        for part, drawn in zip(parts, draws, strict=True):
            by_label[part.label] = results([part], [drawn], options)
    if design.spanning:
        overall = tuple(replace(r, caution=join([r.caution, SPANNING])) for r in overall)
    return ArmResults(overall, by_label)


def _method(name: str) -> IntervalMethod:
    """`paired_bootstrap_arms` by one of its methods."""

    def arms(scores: PairedScores) -> ArmResults:
        options = replace(scores.options, method=name)
        return paired_bootstrap_arms(scores.matrix, scores.baseline, scores.design, options)

    return IntervalMethod(arms, resamples=True)


BCA, PERCENTILE, STUDENTIZED = map(_method, METHODS)
