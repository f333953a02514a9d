"""One-sided tests of a run that stops tasks as soon as they are decided: one task, or the average.

The chance of error is shared out over three rules, so that each false verdict has probability
(1 - confidence) / 2 at most however the run went:

- **looks** (half of it): the sequence of every task excludes the null. Tasks are stopped by this
  rule, at `looking_confidence`. If the average loses the margin some task does, so that all of them
  excluding it is no likelier than one (intersection-union test);
- **end** (0.4): every task was drawn whole, and the bounds that hold in a run that never looked
  exclude it. Nothing is stopped because of the average;
- **ends** (0.1): the mean of the tasks' sequences does, each at its share (Bonferroni). One task
  that collapses is enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.stats.confidence_sequence import log_capital, lower_end
from evalkit.stats.inputs import Floats
from evalkit.stats.one_sided import OneSidedTest
from evalkit.stats.stopping import QUESTIONS, complete_units

LOOKS, END, ENDS = 0.5, 0.4, 0.1  # shares of the chance of error, by rule


def looking_confidence(confidence: float) -> float:
    """Confidence of the sequences by which tasks are stopped, from that of the verdicts."""
    return 1.0 - LOOKS * (1.0 - confidence)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How the samples of a run that stops early were drawn.

    Attributes:
        question: a key of `evalkit.stats.QUESTIONS`.
        order: by task, ids of all its samples as they are drawn.
        clusters: by task, haystack of every sample in the same order, `""` for none.
    """

    question: str
    order: Mapping[str, Sequence[str]]
    clusters: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        """Raises EvalkitError for an unknown question."""
        if self.question not in QUESTIONS:
            raise EvalkitError(f"question {self.question!r}: known are {', '.join(QUESTIONS)}")


@dataclass(frozen=True, slots=True, eq=False)
class DrawnTask:
    """What was drawn of one task.

    Attributes:
        differences: [t] paired differences in the order drawn.
        size: samples of the whole task.
        clusters: [size] haystack of every sample in the same order, `""` for none; empty: none.
    """

    differences: Floats
    size: int
    clusters: Sequence[str] = ()

    @property
    def whole(self) -> bool:
        """Whether all of it was drawn."""
        return len(self.differences) == self.size

    @property
    def mean(self) -> float:
        """Mean difference so far."""
        return math.fsum(self.differences) / len(self.differences)

    def mirrored(self) -> DrawnTask:
        """The same for the opposite difference."""
        return DrawnTask(-self.differences, self.size, self.clusters)

    def p(self, null: float, question: str, alpha: float) -> float:
        """Anytime p-value against a mean of at most `null`: 1 / largest capital (Ville 1939)."""
        if self.whole and question == "benchmark":  # nothing is left to infer
            return 0.0 if self.mean > null else 1.0
        values, bound, population = self._units(question)
        if not len(values):
            return 1.0
        x, mean = (values + 1.0) / 2.0, np.array([(null / bound + 1.0) / 2.0])
        capital = log_capital(x, mean, population, 1.0 - 2.0 * alpha).max()
        return math.exp(-max(0.0, float(capital)))

    def lower(self, question: str, alpha: float) -> float:
        """Lower end of the confidence sequence, wrong with probability alpha at most, ever."""
        if self.whole and question == "benchmark":
            return self.mean
        values, bound, population = self._units(question)
        if not len(values):
            return -1.0
        end = _lower_end(values.tobytes(), population, alpha)
        return max(-1.0, bound * (2.0 * end - 1.0))

    def _units(self, question: str) -> tuple[Floats, float, int | None]:
        clusters = list(self.clusters) or None
        values, _, bound, units = complete_units(self.differences, self.size, clusters)
        return values, bound, units if question == "benchmark" else None


@lru_cache(maxsize=4096)
def _lower_end(values: bytes, population: int | None, alpha: float) -> float:
    """`lower_end` of units in [-1, 1]; a row of a table asks for the same one several times."""
    x = (np.frombuffer(values, dtype=np.float64) + 1.0) / 2.0
    return lower_end(x, population, 1.0 - 2.0 * alpha)


@dataclass(frozen=True, slots=True, eq=False)
class SequentialTest:
    """The test of the unweighted mean over tasks that may have been stopped (`OneSidedTest`).

    Attributes:
        tasks: what was drawn of each.
        question: a key of `evalkit.stats.QUESTIONS`.
        alpha: level of the verdicts; sets the bets.
        end: the bounds of a run that never looked, where all was drawn.
    """

    tasks: tuple[DrawnTask, ...]
    question: str
    alpha: float
    end: OneSidedTest | None = None

    @property
    def known(self) -> bool:
        """Whether nothing is left to infer: the question is the benchmark, and all was drawn."""
        return self.question == "benchmark" and all(task.whole for task in self.tasks)

    @property
    def mean(self) -> float:
        """The mean where all was drawn, else the middle of what the sequences allow.

        Where one stops early the mean so far is drawn to the side that made one stop.
        """
        if all(task.whole for task in self.tasks):
            return math.fsum(task.mean for task in self.tasks) / len(self.tasks)
        return (self.lower(self.alpha) - self.mirrored().lower(self.alpha)) / 2.0

    def mirrored(self) -> SequentialTest:
        """The same for the opposite difference."""
        end = None if self.end is None else self.end.mirrored()
        tasks = tuple(task.mirrored() for task in self.tasks)
        return SequentialTest(tasks, self.question, self.alpha, end)

    def p(self, null: float) -> float:
        """One-sided p-value against a difference of at most `null`, however often one looked.

        The smallest of the rules' p-values, each divided by its share. The rule "ends" only says
        whether it rejects at `alpha`.
        """
        if self.known:
            return 0.0 if self.mean > null else 1.0
        looks = max(task.p(null, self.question, LOOKS * self.alpha) for task in self.tasks)
        p = min(1.0, looks / LOOKS)
        if self.end is not None:
            p = min(p, self.end.p(null) / END)
        if p > self.alpha and len(self.tasks) > 1 and self._mean_of_ends(self.alpha) > null:
            p = self.alpha
        return p

    def lower(self, alpha: float) -> float:
        """Lower bound of the difference, wrong with probability alpha at most: the best rule's."""
        if self.known:
            return self.mean
        bounds = [min(task.lower(self.question, LOOKS * alpha) for task in self.tasks)]
        if self.end is not None:
            bounds.append(self.end.lower(END * alpha))
        if len(self.tasks) > 1:
            bounds.append(self._mean_of_ends(alpha))
        return max(bounds)

    def _mean_of_ends(self, alpha: float) -> float:
        """Mean of the tasks' ends, each wrong with chance ENDS alpha / K."""
        share = ENDS * alpha / len(self.tasks)
        return math.fsum(t.lower(self.question, share) for t in self.tasks) / len(self.tasks)
