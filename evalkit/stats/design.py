"""How samples are grouped, and how an interval is made: the choices behind a paired comparison."""

from __future__ import annotations

from dataclasses import dataclass

from evalkit.core.errors import EvalkitError
from evalkit.stats.inputs import Floats, Labels, Stratum, clusters_span_strata, split


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Grouping of n samples.

    Attributes:
        strata: [n] task of each sample; the estimate is the unweighted mean over tasks. None: one.
        clusters: [n] haystack of each sample; whole haystacks are the units. None: each its own.
        keys: [n] sample ids; with them (or clusters) results do not depend on sample order.
    """

    strata: Labels | None = None
    clusters: Labels | None = None
    keys: Labels | None = None

    def split(self, differences: Floats) -> list[Stratum]:
        """Differences [arms, n] cut into strata and reduced to units (`inputs.split`)."""
        return split(differences, self.strata, self.clusters, self.keys)

    @property
    def spanning(self) -> bool:
        """Whether some cluster has samples in more than one stratum."""
        return clusters_span_strata(self.strata, self.clusters)


@dataclass(frozen=True, slots=True)
class IntervalOptions:
    """How an interval is made.

    Attributes:
        method: a name of `evalkit.stats.methods.METHODS`.
        confidence: nominal coverage of the two-sided interval.
        n_resamples: number of resamples of a bootstrap.
        seed: of the resamples; no global random state is used.
    """

    method: str = "auto"
    confidence: float = 0.95
    n_resamples: int = 10000
    seed: int = 0

    def check(self) -> None:
        """Refuse what no method takes.

        Raises:
            EvalkitError: a confidence or number of resamples out of range.
        """
        if not 0.0 < self.confidence < 1.0:
            raise EvalkitError(f"confidence {self.confidence} must lie between 0 and 1")
        if self.n_resamples < 1:
            raise EvalkitError(f"n_resamples {self.n_resamples} must be at least 1")
