"""Paired differences by any method, and the method of the table beside a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import Registry
from evalkit.stats.design import Design, IntervalOptions
from evalkit.stats.inputs import Labels, Stratum, pair, score_matrix
from evalkit.stats.interval_method import IntervalMethod, PairedScores
from evalkit.stats.one_sided import bound_result, is_clustered, is_right_wrong, valid_test
from evalkit.stats.result import SPANNING, ArmResults, PairedResult, join
from evalkit.stats.score_interval import closed_form
from evalkit.stats.trinomial import PairedCounts

METHODS = Registry(
    "interval method",
    IntervalMethod,
    {
        "auto": "evalkit.stats.methods:AUTO",
        "score": "evalkit.stats.score_interval:SCORE",
        "t": "evalkit.stats.score_interval:T",
        "exact": "evalkit.stats.one_sided:EXACT",
        "gaffke": "evalkit.stats.one_sided:GAFFKE",
        "newcombe": "evalkit.stats.newcombe:NEWCOMBE",
        "percentile": "evalkit.stats.bootstrap:PERCENTILE",
        "bca": "evalkit.stats.bootstrap:BCA",
        "studentized": "evalkit.stats.bootstrap:STUDENTIZED",
    },
)


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
        method: a name of `METHODS`; ``"auto"`` takes `table_method`, ``"newcombe"`` only
            right/wrong scores without clusters.

    The other arguments and the errors are those of `paired_bootstrap`.
    """
    options = IntervalOptions(method, confidence, n_resamples, seed)
    design = Design(strata, clusters)
    return paired_arms(pair(a, b), 0, design, options, by_task=False).overall[1]


def paired_arms(
    scores: ArrayLike,
    baseline: int,
    design: Design | None = None,
    options: IntervalOptions | None = None,
    *,
    by_task: bool = True,
) -> ArmResults:
    """`paired_difference` of every arm against one; see `paired_bootstrap_arms`.

    Without `by_task` methods that compute task by task leave out the results of single tasks.
    """
    design, options = design or Design(), options or IntervalOptions()
    chosen = METHODS[options.method]
    options.check()
    matrix = score_matrix(scores)
    if not 0 <= baseline < len(matrix):
        raise EvalkitError(f"baseline {baseline}: there are {len(matrix)} arms")
    results = chosen.arms(PairedScores(matrix, baseline, design, options, by_task))
    if design.spanning:
        overall = tuple(replace(r, caution=join([r.caution, SPANNING])) for r in results.overall)
        return replace(results, overall=overall)
    return results


def table_method(arm: int, parts: Sequence[Stratum]) -> str:
    """The interval of the table beside verdicts that rest on bounds.

    For right/wrong scores the bounds themselves, but for macro averages of unequal tasks, and for
    graded scores, the score interval: it says what losses of the kinds seen allow.
    """
    if not is_right_wrong(parts, arm):
        return "score"
    if isinstance(valid_test(parts, arm), PairedCounts):
        return "exact"
    return "gaffke" if is_clustered(parts) else "score"


def _beside_bounds(scores: PairedScores) -> ArmResults:
    spanning = scores.design.spanning

    def one(arm: int, parts: Sequence[Stratum]) -> PairedResult:
        name = "score" if spanning and len(parts) > 1 else table_method(arm, parts)
        make = closed_form if name == "score" else bound_result
        return make(arm, parts, name, scores.confidence)

    return scores.results(one)


AUTO = IntervalMethod(_beside_bounds)
