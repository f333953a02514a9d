"""What an interval method is: the record behind a name of `evalkit.stats.methods.METHODS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalkit.stats.inputs import Floats, Labels, Stratum, split

if TYPE_CHECKING:
    from evalkit.stats.bootstrap import ArmResults


@dataclass(frozen=True, slots=True)
class PairedScores:
    """Scores of several arms on the same samples, and the choices of an interval.

    Attributes:
        matrix: [arms, n] scores in [0, 1].
        baseline: row that the others are compared with.
        strata: [n] task of each sample, or None.
        clusters: [n] haystack of each sample, or None.
        keys: [n] ids that make results independent of the order of the samples, or None.
        confidence: nominal coverage of the two-sided interval.
        n_resamples: for methods that draw resamples.
        seed: of the resamples.
    """

    matrix: Floats
    baseline: int
    strata: Labels | None
    clusters: Labels | None
    keys: Labels | None
    confidence: float
    n_resamples: int
    seed: int

    def parts(self) -> list[Stratum]:
        """Differences to the baseline, task by task; one part where there are no tasks."""
        differences = self.matrix - self.matrix[self.baseline]
        return split(differences, self.strata, self.clusters, self.keys)


@dataclass(frozen=True, slots=True)
class IntervalMethod:
    """Intervals and p-values of paired differences.

    Attributes:
        arms: results of every arm, overall and by stratum; raises EvalkitError for scores that the
            method does not take.
        resamples: whether it draws resamples.
        right_wrong: whether it takes scores of 0 and 1 only, without clusters.
    """

    arms: Callable[[PairedScores], ArmResults]
    resamples: bool = False
    right_wrong: bool = False
