"""Power of the verdicts that rest on bounds: what a plan decides, also with shared haystacks.

The bound of the expected data, with as many units as planned and the spread of a pilot, tells how
far the margin lies from it; the measured difference scatters around the expected one:
power = Phi((bound + margin) / standard error), `bound` for the level of the verdict. Right/wrong
tasks without haystacks take the score test (`evalkit.stats.power`), which the exact one follows
within a few percent, and never fewer pairs than decide when none differs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.stats.closed_form_intervals import NORMAL
from evalkit.stats.gaffke import BoundedUnits
from evalkit.stats.power import Spread, check_power, power_of
from evalkit.stats.requirements import least_equal_pairs
from evalkit.stats.verdict import check_margin

MOST_FACTOR = 1e6
RIGHT_WRONG = 1e-9


@dataclass(frozen=True, slots=True)
class Plan:
    """Samples planned on each task, and how their differences spread.

    Attributes:
        spreads: by task.
        samples: by task, the same keys.
    """

    spreads: Mapping[str, Spread]
    samples: Mapping[str, int]

    def __post_init__(self) -> None:
        """Raises EvalkitError where a task has no samples planned, or there is no task."""
        if not self.spreads:
            raise EvalkitError("no benchmark to plan for")
        for task in self.spreads:
            if self.samples.get(task, 0) < 1:
                raise EvalkitError(f"{task}: no samples planned")

    def grown(self, factor: float) -> Plan:
        """The same plan with more samples, haystacks in proportion."""
        return Plan(
            self.spreads,
            {task: max(1, math.ceil(n * factor - 1e-9)) for task, n in self.samples.items()},
        )

    def haystacks(self, task: str) -> float:
        """Independent units of a task."""
        return max(1.0, self.samples[task] / self.spreads[task].cluster_size)

    @property
    def clustered(self) -> bool:
        """Whether samples share haystacks on some task."""
        return any(spread.cluster_size > 1.0 for spread in self.spreads.values())

    @property
    def standard_error(self) -> float:
        """Of the (macro) difference."""
        variance = [s.sd**2 / self.samples[task] for task, s in self.spreads.items()]
        return math.sqrt(math.fsum(variance)) / len(self.spreads)


def verdict_power(
    plan: Plan, margin: float, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Chance that the plan decides: "no worse", or "worse" where the loss is beyond the margin.

    Args:
        plan: tasks; several are the unweighted mean.
        margin: largest tolerable loss.
        delta: true difference of every task.
        confidence: two-sided; each verdict is wrong with half of the rest.

    Raises:
        EvalkitError: margin out of range.
    """
    check_margin(margin)
    alpha = (1.0 - confidence) / 2.0
    moved = Plan({t: s.moved(delta) for t, s in plan.spreads.items()}, plan.samples)
    if _one_exact_task(moved):
        n, spread = sum(moved.samples.values()), _pooled(moved)
        if 0.0 < margin < 1.0 and delta > -margin:
            least = least_equal_pairs(margin, alpha)
            if n < least or spread.gain + spread.loss == 0.0:
                return float(n >= least)
        return power_of(n, margin, spread, delta=delta, confidence=confidence)
    test = _expected(moved)
    if delta < -margin:
        test, margin = test.mirrored(), -margin
    beyond, error = test.lower(alpha) + margin, moved.standard_error
    if error <= 0.0:
        return float(beyond > 0.0)
    return NORMAL.cdf(beyond / error)


def growth_needed(
    plan: Plan,
    margin: float,
    *,
    delta: float = 0.0,
    power: float = 0.8,
    confidence: float = 0.95,
) -> float:
    """Factor by which all samples (and haystacks) must grow to decide with the power; inf: never.

    Below 1 where the plan has more than it needs.

    Raises:
        EvalkitError: margin or power out of range.
    """
    check_power(power)

    def enough(factor: float) -> bool:
        grown = plan.grown(factor)
        return verdict_power(grown, margin, delta=delta, confidence=confidence) >= power

    low, high = 1.0 / max(plan.samples.values()), MOST_FACTOR
    if not enough(high):
        return math.inf
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def least_margin(plan: Plan, *, power: float = 0.8, confidence: float = 0.95) -> float:
    """The smallest margin that the plan decides with the power if the arms are equal."""
    check_power(power)
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        enough = verdict_power(plan, middle, confidence=confidence) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def least_effect(plan: Plan, *, power: float = 0.8, confidence: float = 0.95) -> float:
    """The smallest true loss that the plan shows to be one with the power; 1 where none is."""
    check_power(power)
    low, high = 0.0, 1.0
    if verdict_power(plan, 0.0, delta=-1.0, confidence=confidence) < power:
        return 1.0
    for _ in range(30):
        middle = (low + high) / 2
        enough = verdict_power(plan, 0.0, delta=-middle, confidence=confidence) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def undecidable_below(haystacks: float, confidence: float = 0.95) -> float:
    """The margin that so many haystacks cannot decide, however many samples each of them holds.

    1 - alpha^(1 / haystacks): a share of lost haystacks that none of them shows with chance alpha.
    """
    alpha = (1.0 - confidence) / 2.0
    return -math.expm1(math.log(alpha) / haystacks)


def haystacks_for(margin: float, confidence: float = 0.95) -> int:
    """The least number of haystacks that can decide a margin.

    Raises:
        EvalkitError: margin out of range, or 0, which none decides.
    """
    check_margin(margin)
    if margin == 0.0:
        raise EvalkitError("a margin of 0 is decided by no number of haystacks")
    if margin == 1.0:
        return 1
    alpha = (1.0 - confidence) / 2.0
    return math.ceil(math.log(alpha) / math.log1p(-margin) - 1e-9)


def _one_exact_task(plan: Plan) -> bool:
    """Whether the exact test applies: right/wrong, no haystacks, tasks of one size."""
    right_wrong = all(abs(s.square - s.gain - s.loss) < RIGHT_WRONG for s in plan.spreads.values())
    return right_wrong and not plan.clustered and len(set(plan.samples.values())) == 1


def _pooled(plan: Plan) -> Spread:
    spreads = list(plan.spreads.values())
    gain, loss, square = (
        math.fsum(getattr(s, name) for s in spreads) / len(spreads)
        for name in ("gain", "loss", "square")
    )
    return Spread(gain, loss, square)


def _expected(plan: Plan) -> BoundedUnits:
    """Units of every task as expected: three values with the moments of a haystack's mean."""
    units = {task: plan.haystacks(task) for task in plan.spreads}
    total = math.fsum(units.values())
    values, counts, largest = [], [], 0.0
    for task, spread in plan.spreads.items():
        weight = total / (units[task] * len(units))
        change = spread.gain + spread.loss
        second = spread.sd**2 / spread.cluster_size + spread.delta**2
        size = min(1.0, second / change) if change > 0.0 else 1.0
        shares = (spread.gain / size, spread.loss / size)
        scale = max(1.0, sum(shares))  # haystack means that all differ
        gain, loss = shares[0] / scale, shares[1] / scale
        values += [size * scale * weight, -size * scale * weight, 0.0]
        counts += [units[task] * share for share in (gain, loss, 1.0 - gain - loss)]
        largest = max(largest, weight)
    there = np.array(counts) > 1e-12
    return BoundedUnits(np.array(values)[there], np.array(counts)[there], largest)
