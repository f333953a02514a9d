"""Paired differences by any method, and the method that the coverage table supports."""

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
from evalkit.stats.score_interval import closed_form, closed_form_arms
from evalkit.stats.trinomial import PairedCounts

METHODS = Registry(
    "interval method",
    IntervalMethod,
    {
        "auto": "evalkit.stats.methods:AUTO",
        "auto (bounds)": "evalkit.stats.methods:AUTO_BOUNDS",
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
    options = IntervalOptions(method, confidence, n_resamples, seed)
    return paired_arms(pair(a, b), 0, Design(strata, clusters), options).overall[1]


def paired_arms(
    scores: ArrayLike,
    baseline: int,
    design: Design | None = None,
    options: IntervalOptions | None = None,
) -> ArmResults:
    """`paired_difference` of every arm against one; see `paired_bootstrap_arms`."""
    design, options = design or Design(), options or IntervalOptions()
    chosen = METHODS[options.method]
    options.check()
    matrix = score_matrix(scores)
    if not 0 <= baseline < len(matrix):
        raise EvalkitError(f"baseline {baseline}: there are {len(matrix)} arms")
    found = chosen.arms(PairedScores(matrix, baseline, design, options))
    if design.spanning:
        overall = tuple(replace(r, caution=join([r.caution, SPANNING])) for r in found.overall)
        return replace(found, overall=overall)
    return found


def situation(arm: int, parts: Sequence[Stratum]) -> str:
    """The situation of one arm over some strata, a key of `DEFAULT_METHODS`."""
    if any(part.units.clustered for part in parts):
        return "clusters"
    if len(parts) > 1:
        return "macro average"
    units = parts[0].units
    steps = abs(units.gains[arm] + units.losses[arm] - units.squares[arm])
    return "right/wrong scores" if steps < 1e-12 else "graded scores"


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
    def one(arm: int, parts: Sequence[Stratum]) -> PairedResult:
        across = scores.design.spanning and len(parts) > 1
        name = "score" if across else table_method(arm, parts)
        make = closed_form if name == "score" else bound_result
        return make(arm, parts, name, scores.confidence)

    return scores.results(one)


AUTO = IntervalMethod(
    lambda scores: closed_form_arms(
        scores, lambda arm, parts: default_method(situation(arm, parts))
    )
)
AUTO_BOUNDS = IntervalMethod(_beside_bounds)
