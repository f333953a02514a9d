"""What would decide an undecided verdict: how many samples or haystacks, and of which task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from evalkit.stats.closed_form_intervals import critical_z, tango_score
from evalkit.stats.gaffke import BoundedUnits, solve_p
from evalkit.stats.inputs import Floats, Stratum
from evalkit.stats.one_sided import (
    OneSidedTest,
    ValidTest,
    bounded_units,
    is_clustered,
    score_test,
    valid_test,
)
from evalkit.stats.trinomial import PairedCounts, trinomial_p
from evalkit.stats.verdict import MoreUnits, Reason, SmallTasks, UnseenChanges

AnyTest = TypeVar("AnyTest", bound=OneSidedTest)
LEVELS = 65  # values that more are rounded to where a number of samples is sought
MOST_GROWTH = 1e4  # more samples than this times those at hand are "no number"


def what_decides(
    parts: Sequence[Stratum], arm: int, margin: float, alpha: float
) -> tuple[Reason, ...]:
    """Reasons of an undecided verdict: what would decide it if more samples looked like these.

    The direction is that of the measured difference: towards "no worse" where it is above -margin,
    towards "worse" where it is below.

    Args:
        parts: strata with the differences of the arm.
        arm: its row.
        margin: largest tolerable loss.
        alpha: level of each one-sided test.
    """
    test = valid_test(parts, arm)
    side, null = _side(test, margin)
    losses = test.mean > -margin
    have, noun = _units(parts)
    needed = None if side is None else _grown(have, least_growth(side, null, alpha))
    reasons: list[Reason] = [MoreUnits(have, needed, noun)]
    if isinstance(side, BoundedUnits):
        seen, _ = _side(score_test(parts, arm), margin)
        if seen is not None and seen.p(null) <= alpha:
            reasons = [UnseenChanges(have, needed, noun, losses=losses)]
    if side is not None and len(parts) > 1:
        small = _smallest_tasks(parts, arm, null, alpha, mirrored=not losses)
        reasons += [SmallTasks(small, noun)] if small else []
    return tuple(reasons)


def least_growth(test: ValidTest, null: float, alpha: float) -> float:
    """Factor by which more units of the same kind let a test reject; inf where none does.

    The score statistic of counts grows with the root of the factor; for bounded units the factor
    is solved for.
    """
    if test.mean <= null:
        return math.inf
    if isinstance(test, PairedCounts):
        if test.gains + test.losses == 0:
            return least_equal_pairs(-null, alpha) / test.n
        score = tango_score(test.gains, test.losses, test.n, null)
        return (critical_z(1.0 - 2.0 * alpha) / score) ** 2
    coarse = _coarse(test)
    return _solve(
        lambda factor: BoundedUnits(coarse.values, coarse.counts * factor, coarse.largest).p(null),
        alpha,
    )


@lru_cache(maxsize=1024)
def least_equal_pairs(margin: float, alpha: float) -> int:
    """The least number of right/wrong pairs that decide a margin if none of them differs."""
    pairs = math.ceil(math.log(alpha) / math.log1p(-margin)) if margin < 1.0 else 1
    step = max(1, pairs // 1000)
    while trinomial_p(0, 0, pairs, -margin) > alpha:
        pairs += step
    return pairs


def _solve(p: Callable[[float], float], alpha: float) -> float:
    """The factor above 1 at which a decreasing p-value, above alpha at 1, comes down to it."""
    most = math.log(2.0 * MOST_GROWTH)
    # mirrored, so that the solver's increasing p-value is this one
    exponent = solve_p(lambda x: p(math.exp(-x)), alpha, -most, 0.0, -math.log(2.0), 1.0)
    return math.exp(-exponent)


def _coarse(test: BoundedUnits) -> BoundedUnits:
    """The same mean with at most `LEVELS` values: each is shared out between its neighbors."""
    low, high = float(test.values.min()), float(test.values.max())
    if len(test.values) <= LEVELS:
        return test
    place = (test.values - low) / (high - low) * (LEVELS - 1)
    below = np.minimum(place.astype(np.int64), LEVELS - 2)
    above = (place - below) * test.counts
    counts: Floats = np.bincount(below, test.counts - above, LEVELS).astype(np.float64)
    counts += np.bincount(below + 1, above, LEVELS)
    there = counts > 0.0
    return BoundedUnits(np.linspace(low, high, LEVELS)[there], counts[there], test.largest)


def _side(test: AnyTest, margin: float) -> tuple[AnyTest | None, float]:
    """The test in the direction of the measured difference, and its null; None at the margin."""
    if test.mean > -margin:
        return test, -margin
    return (test.mirrored(), margin) if test.mean < -margin else (None, -margin)


def _units(parts: Sequence[Stratum]) -> tuple[int, str]:
    if is_clustered(parts):
        return sum(part.units.count for part in parts), "haystacks"
    return sum(part.units.n for part in parts), "samples"


def _grown(have: int, factor: float) -> int | None:
    return math.ceil(have * factor - 1e-6) if factor <= MOST_GROWTH else None


def _smallest_tasks(
    parts: Sequence[Stratum], arm: int, null: float, alpha: float, *, mirrored: bool
) -> dict[str, tuple[int, int]]:
    """Tasks to be brought to one common size so that the average decides; empty if that fails.

    Tasks with more units than the common size stay as they are.
    """
    counts = [part.units.count for part in parts]

    def p(size: float) -> float:
        growth = [max(1.0, size / count) for count in counts]
        test = bounded_units([part.units for part in parts], arm, growth)
        return (test.mirrored() if mirrored else test).p(null)

    low, high = float(min(counts)), float(max(counts))
    if low == high or p(high) > alpha:
        return {}
    while high - low > max(0.5, 0.01 * high):
        middle = (low + high) / 2
        low, high = (low, middle) if p(middle) <= alpha else (middle, high)
    size = math.ceil(high - 1e-9)
    return {
        part.label: (count, size) for part, count in zip(parts, counts, strict=True) if count < size
    }
