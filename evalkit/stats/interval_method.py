"""What an interval method is: the record behind a name of `evalkit.stats.methods.METHODS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evalkit.stats.design import Design, IntervalOptions
from evalkit.stats.inputs import Floats, Stratum
from evalkit.stats.result import ArmResults, PairedResult


@dataclass(frozen=True, slots=True)
class PairedScores:
    """Scores of several arms on the same samples, and the choices of an interval.

    Attributes:
        matrix: [arms, n] scores in [0, 1].
        baseline: row that the others are compared with.
        design: grouping of the samples.
        options: confidence, resamples and seed; the method is the one that is asked.
        by_task: whether results of single tasks are wanted.
    """

    matrix: Floats
    baseline: int
    design: Design
    options: IntervalOptions
    by_task: bool = True

    @property
    def confidence(self) -> float:
        """Nominal coverage of the two-sided interval."""
        return self.options.confidence

    def parts(self) -> list[Stratum]:
        """Differences to the baseline, task by task; one part where there are no tasks."""
        return self.design.split(self.matrix - self.matrix[self.baseline])

    def results(self, one: Callable[[int, Sequence[Stratum]], PairedResult]) -> ArmResults:
        """Results of every arm, overall and by stratum, each made from an arm and its strata."""

        def every(parts: Sequence[Stratum]) -> tuple[PairedResult, ...]:
            return tuple(one(arm, parts) for arm in range(len(self.matrix)))

        parts = self.parts()
        if self.design.strata is None or not self.by_task:
            return ArmResults(every(parts), {})
        by_task = {part.label: every([part]) for part in parts}
        overall = by_task[parts[0].label] if len(parts) == 1 else every(parts)
        return ArmResults(overall, by_task)


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
