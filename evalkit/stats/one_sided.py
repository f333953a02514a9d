"""The one-sided tests that a verdict rests on, one for each situation.

| situation | test |
|---|---|
| right/wrong scores, no clusters; macro averages of them, tasks of one size | `PairedCounts` |
| everything else: graded scores, clusters, macro averages of unequal tasks | `BoundedUnits` |

The macro average of equal tasks is tested as one task of all their pairs. Tasks that differ only
make a sum of trials less variable than equal ones do (Hoeffding 1956, Ann. Math. Stat. 27:713).
In `BoundedUnits` a unit is a sample, or a whole cluster, and weighs what it weighs in the average;
the unit added is the heaviest one, lost whole: in a macro average, one of the smallest task.

`ScoreTest` is the interval of the table for graded scores. It does not allow losses of a kind that
the sample does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.stats.gaffke import BoundedUnits
from evalkit.stats.inputs import Stratum, Units
from evalkit.stats.interval_method import IntervalMethod
from evalkit.stats.moments import Moments, moments
from evalkit.stats.result import PairedResult, differing
from evalkit.stats.score_interval import LEAST_P, score_lower, score_tail
from evalkit.stats.trinomial import PairedCounts

ValidTest = PairedCounts | BoundedUnits
DIGITS = 12  # values that agree so far are one value
WHOLE = 1e-9


class OneSidedTest(Protocol):
    """A test of one difference against any null from above, and the bound that it gives."""

    @property
    def mean(self) -> float:
        """The estimate."""
        ...

    def mirrored(self) -> Self:
        """The same for the opposite difference."""
        ...

    def p(self, null: float) -> float:
        """One-sided p-value against a difference of at most `null`."""
        ...

    def lower(self, alpha: float) -> float:
        """Lower bound of the difference, wrong with probability alpha at most."""
        ...


@dataclass(frozen=True, slots=True)
class ScoreTest:
    """The score test (`evalkit.stats.score_interval`).

    Attributes:
        moments: those of the strata that have a spread; None where none has.
        center: the estimate.
        slack: share of the strata without a spread, which may lie anywhere in [-1, 1].
    """

    moments: Moments | None
    center: float
    slack: float

    @property
    def mean(self) -> float:
        """The estimate."""
        return self.center

    def mirrored(self) -> ScoreTest:
        """The same for the opposite difference."""
        moments = None if self.moments is None else self.moments.mirrored()
        return ScoreTest(moments, -self.center, self.slack)

    def p(self, null: float) -> float:
        """One-sided p-value against a difference of at most `null`."""
        return 1.0 if self.moments is None else score_tail(self.moments, null + self.slack)

    def lower(self, alpha: float) -> float:
        """Lower bound of the difference at one-sided level alpha."""
        if self.moments is None:
            return -1.0
        return max(-1.0, score_lower(self.moments, 1.0 - 2.0 * alpha) - self.slack)


def valid_test(parts: Sequence[Stratum], arm: int) -> ValidTest:
    """The test that holds for one arm over some strata, whatever losses they do not show."""
    if is_right_wrong(parts, arm) and not is_clustered(parts) and _equal_sizes(parts):
        gains = round(sum(float(part.units.gains[arm]) for part in parts))
        losses = round(sum(float(part.units.losses[arm]) for part in parts))
        return PairedCounts(gains, losses, sum(part.units.n for part in parts))
    return bounded_units([part.units for part in parts], arm)


def score_test(parts: Sequence[Stratum], arm: int) -> ScoreTest:
    """The test behind the interval of the table."""
    slack = sum(part.units.count == 1 for part in parts) / len(parts)
    center = math.fsum(float(part.units.delta[arm]) for part in parts) / len(parts)
    return ScoreTest(moments(arm, parts), center, slack)


def bounded_units(
    strata: Sequence[Units], arm: int, growth: Sequence[float] | None = None
) -> BoundedUnits:
    """Units of all strata with the weight they have in the unweighted mean over strata.

    Args:
        strata: units of each stratum.
        arm: row of the differences.
        growth: factor by which each stratum has more units of the same kind; default: 1.
    """
    factors = [1.0] * len(strata) if growth is None else list(growth)
    total = math.fsum(f * u.count for f, u in zip(factors, strata, strict=True))
    values, counts, largest = [], [], 0.0
    for factor, units in zip(factors, strata, strict=True):
        weight = total / (factor * units.n * len(strata))
        values.append(units.sums[arm] * weight)
        counts.append(np.full(units.count, factor))
        largest = max(largest, weight * float(units.sizes.max()))
    distinct, which = np.unique(np.round(np.concatenate(values), DIGITS), return_inverse=True)
    shapes = np.bincount(which, np.concatenate(counts)).astype(np.float64)
    return BoundedUnits(distinct, shapes, largest)


def bound_result(
    arm: int, parts: Sequence[Stratum], method: str, confidence: float
) -> PairedResult:
    """The two one-sided bounds as an interval, method ``"exact"`` or ``"gaffke"``.

    Raises:
        EvalkitError: ``"exact"`` for graded scores, clusters, or tasks of different size.
    """
    test = valid_test(parts, arm)
    if method == "gaffke":
        test = bounded_units([part.units for part in parts], arm)
    elif not isinstance(test, PairedCounts):
        raise EvalkitError(
            "method 'exact' takes right/wrong scores without clusters, of tasks of one size;"
            " 'gaffke' takes any"
        )
    alpha = (1.0 - confidence) / 2.0
    p_value = 2.0 * min(test.p(0.0), test.mirrored().p(0.0))
    return PairedResult(
        delta=test.mean,
        low=max(-1.0, test.lower(alpha)),
        high=min(1.0, -test.mirrored().lower(alpha)),
        p_value=min(1.0, max(LEAST_P, p_value)),
        n=sum(part.units.n for part in parts),
        n_clusters=sum(part.units.count for part in parts),
        method=method,
        confidence=confidence,
        n_differing=differing(arm, parts),
    )


def is_right_wrong(parts: Sequence[Stratum], arm: int) -> bool:
    """Whether every difference of an arm is -1, 0 or 1."""
    return all(
        abs(float(u.gains[arm] + u.losses[arm] - u.squares[arm])) < WHOLE
        for u in (part.units for part in parts)
    )


def is_clustered(parts: Sequence[Stratum]) -> bool:
    """Whether samples share haystacks in some stratum."""
    return any(part.units.clustered for part in parts)


def _equal_sizes(parts: Sequence[Stratum]) -> bool:
    return len({part.units.n for part in parts}) == 1


def _bound_method(name: str, *, right_wrong: bool) -> IntervalMethod:
    """`bound_result` by one of its methods."""
    return IntervalMethod(
        lambda scores: scores.results(
            lambda arm, parts: bound_result(arm, parts, name, scores.confidence)
        ),
        right_wrong=right_wrong,
    )


EXACT = _bound_method("exact", right_wrong=True)
GAFFKE = _bound_method("gaffke", right_wrong=False)
