"""Power before spending: how many samples decide a margin, and what a planned n can show.

Everything follows from the spread of the paired difference, from a pilot run (`spread_of`) or an
assumed share of samples that differ (`assumed_spread`). The test planned for is the score test
of `evalkit.stats.score_interval` against a loss of the margin, so the required n never falls below
what decides the margin when no sample differs at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.closed_form_intervals import NORMAL, critical_z, null_variance
from evalkit.stats.inputs import Labels, pair, split
from evalkit.stats.moments import moments
from evalkit.stats.verdict import check_margin

LEAST_SAMPLES = 20  # where the coverage table starts
MOST_SAMPLES = 10**9


@dataclass(frozen=True, slots=True)
class Spread:
    """How the paired differences of one benchmark spread.

    Attributes:
        gain: expected gain per sample, E max(d, 0).
        loss: expected loss per sample, E max(-d, 0).
        square: E d^2.
        design: design effect of shared haystacks, 1 without.
        pilot: pairs of samples this was measured on, 0 if assumed.
        cluster_size: samples per haystack.
    """

    gain: float
    loss: float
    square: float
    design: float = 1.0
    pilot: int = 0
    cluster_size: float = 1.0

    @property
    def delta(self) -> float:
        """The difference of the means."""
        return self.gain - self.loss

    @property
    def sd(self) -> float:
        """Standard deviation of the difference of one sample, design effect included."""
        return math.sqrt(self.design * max(0.0, self.square - self.delta**2))

    def moved(self, delta: float) -> Spread:
        """The same amount of change, with another true difference.

        Gains and losses keep their sum where they can; a difference larger than it is all loss
        (or all gain), and the squares grow along.
        """
        change = max(self.gain + self.loss, abs(delta))
        size = self.square / (self.gain + self.loss) if self.gain + self.loss > 0.0 else 1.0
        gain, loss = (change + delta) / 2, (change - delta) / 2
        return replace(self, gain=gain, loss=loss, square=change * size)


def spread_of(a: ArrayLike, b: ArrayLike, *, clusters: Labels | None = None) -> Spread:
    """Spread of a pilot run.

    Args:
        a: [n] scores of the arm in [0, 1]; with repeats, [n] means over them.
        b: [n] scores of the baseline on the same samples.
        clusters: [n] haystack of each sample.

    Raises:
        EvalkitError: fewer than two samples or clusters, or scores `paired_bootstrap` refuses.
    """
    matrix = pair(a, b)
    parts = split(matrix[1:] - matrix[:1], None, clusters)
    m = moments(0, parts)
    if m is None:
        raise EvalkitError("a pilot needs two samples (two clusters) at least")
    units = parts[0].units
    n = units.n
    design = m.design if m.cluster_design is None else max(1.0, m.cluster_design)
    return Spread(
        float(units.gains[0]) / n,
        float(units.losses[0]) / n,
        float(units.squares[0]) / n,
        design,
        n,
        n / units.count,
    )


def assumed_spread(discordance: float, *, size: float = 1.0, delta: float = 0.0) -> Spread:
    """Spread of an assumed share of samples whose score differs.

    Args:
        discordance: share of samples on which the arms differ; right/wrong benchmarks under mild
            index reuse show 0.02 to 0.1.
        size: typical difference on those samples, 1 for right/wrong scores.
        delta: assumed true difference.

    Raises:
        EvalkitError: a share or size outside [0, 1], or a delta that the share cannot make.
    """
    if not (0.0 <= discordance <= 1.0 and 0.0 < size <= 1.0):
        raise EvalkitError("discordance and size must lie in [0, 1]")
    if abs(delta) > discordance * size + 1e-12:
        raise EvalkitError(f"a difference of {delta} needs more samples to differ: {discordance}")
    change = discordance * size
    return Spread((change + delta) / 2, (change - delta) / 2, change * size)


def samples_needed(
    margin: float,
    spread: Spread,
    *,
    delta: float = 0.0,
    power: float = 0.8,
    confidence: float = 0.95,
) -> int:
    """Samples with which the verdict "no worse" comes out with the given power.

    n = D (z_a sqrt(V0) + z_b sqrt(V1))^2 / (delta + margin)^2, V1 the variance of one difference
    at the true delta, V0 that of Tango's score test at a difference of -margin, D the design
    effect of clusters; if the true delta is below -margin, of the verdict "worse".

    Args:
        margin: largest tolerable loss, in score units.
        spread: of the paired differences; it is moved to `delta`.
        delta: true difference assumed, 0 for "really the same".
        power: chance of a decision.
        confidence: of the two-sided interval that the verdict reads.

    Raises:
        EvalkitError: margin or power out of range, or delta = -margin, which no n can decide.
    """
    check_margin(margin)
    check_power(power)
    gap = delta + margin
    if abs(gap) < 1e-12:
        raise EvalkitError("a true difference of exactly -margin cannot be decided by any n")
    moved = spread.moved(delta)
    z_a, z_b = critical_z(confidence), NORMAL.inv_cdf(power)
    null, truth = _null_variance(moved, -margin), max(0.0, moved.square - delta**2)
    root = z_a * math.sqrt(null) + z_b * math.sqrt(truth)
    needed = spread.design * root**2 / gap**2
    return max(LEAST_SAMPLES, math.ceil(min(needed, MOST_SAMPLES) - 1e-9))


def power_of(
    n: int, margin: float, spread: Spread, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Chance that n samples decide the margin; `samples_needed` solved for the power."""
    check_margin(margin)
    moved = spread.moved(delta)
    null, truth = _null_variance(moved, -margin), max(0.0, moved.square - delta**2)
    gap = abs(delta + margin) * math.sqrt(n / spread.design)
    excess = gap - critical_z(confidence) * math.sqrt(null)
    if truth <= 0.0:
        return 1.0 if excess > 0.0 else 0.0
    return NORMAL.cdf(excess / math.sqrt(truth))


def check_power(power: float) -> None:
    """Refuse a power that is not in [0.5, 1)."""
    if not 0.5 <= power < 1.0:
        raise EvalkitError(f"power {power} must lie in [0.5, 1)")


def _null_variance(spread: Spread, d: float) -> float:
    """Tango's variance at a difference of d, of the three-valued variable with the same moments."""
    change = spread.gain + spread.loss
    scale = spread.square / change if change > 0.0 else 1.0
    held = max(-1.0, min(1.0, d / scale))
    return scale**2 * null_variance(spread.gain / scale, spread.loss / scale, held)
