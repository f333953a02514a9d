"""Mean of values without bounds, such as a loss in nats, with an interval over documents.

There is no verdict here. That a loss is below a margin can be said of scores in [0, 1] whatever
their distribution is (`evalkit.stats.gaffke`); of values without an upper end no number of
documents excludes that a few, none of them seen, lose without limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from evalkit.stats.inputs import Floats, Labels, Stratum, label_array, reduce
from evalkit.stats.moments import moments
from evalkit.stats.score_interval import t_lower


@dataclass(frozen=True, slots=True)
class UnboundedMean:
    """A mean with its interval.

    Attributes:
        mean: over all values.
        low: lower end; None of a single document, like the upper.
        high: upper end.
    """

    mean: float
    low: float | None
    high: float | None


def unbounded_mean(values: Floats, documents: Labels, confidence: float) -> UnboundedMean:
    """Mean of [n] values with Student's interval; whole documents are the units.

    Variance and degrees of freedom are those of the t interval of scores: cluster-robust, of a
    ratio, so that documents may differ in length (`evalkit.stats.inputs.Units`).
    """
    labels = label_array(documents, len(values), "documents")
    units = reduce(values[None, :], labels)
    spread = moments(0, [Stratum("", units)])
    mean = float(units.delta[0])
    if spread is None:
        return UnboundedMean(mean, None, None)
    high = -t_lower(spread.mirrored(), confidence)
    return UnboundedMean(mean, t_lower(spread, confidence), high)
