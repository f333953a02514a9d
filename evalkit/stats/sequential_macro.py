"""Verdicts of a run that stops tasks as soon as they are decided: one task, or a macro average.

The chance of error is shared out over three rules, so that each false verdict has probability
(1 - confidence) / 2 at most however the run went:

- **looks** (half of it): the sequence of every task excludes the margin. Tasks are stopped by this
  rule, at `looking_confidence`. If the average loses the margin some task does, so that all of them
  excluding it is no likelier than one (intersection-union test);
- **end** (0.4): every task was drawn whole, and the bounds that hold in a run that never looked
  exclude the margin. Nothing is stopped because of the average;
- **ends** (0.1): the mean of the tasks' sequences does, each at its share (Bonferroni). One task
  that collapses is enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.stats.decision import Views, weigh
from evalkit.stats.inputs import Floats, split
from evalkit.stats.one_sided import valid_test
from evalkit.stats.stopping import SequentialVerdict, sequential_decision, sequential_verdicts
from evalkit.stats.verdict import UNDECIDED, Verdict, verdict

LOOKS, END, ENDS = 0.5, 0.4, 0.1  # shares of the chance of error, by rule


@dataclass(frozen=True, slots=True)
class DrawnTask:
    """What was drawn of one task.

    Attributes:
        differences: [t] paired differences in the order drawn.
        size: samples of the whole task.
        clusters: [size] haystack of every sample in the same order, `""` for none; empty: none.
    """

    differences: Sequence[float]
    size: int
    clusters: Sequence[str] = ()

    @property
    def whole(self) -> bool:
        """Whether all of it was drawn."""
        return len(self.differences) == self.size


def looking_confidence(confidence: float) -> float:
    """Confidence of the sequences by which tasks are stopped, from that of the verdicts."""
    return 1.0 - LOOKS * (1.0 - confidence)


def sequential_macro(
    tasks: Mapping[str, DrawnTask], margin: float, question: str, *, confidence: float = 0.95
) -> SequentialVerdict:
    """Verdict on the unweighted mean over tasks (on one task, where there is one).

    Args:
        tasks: what was drawn of each.
        margin: largest tolerable loss of the average.
        question: a key of `evalkit.stats.QUESTIONS`.
        confidence: two-sided; "no worse" and "worse" are each wrong with half of the rest.

    Returns:
        The state of the average. Its interval is the one of the rule "end" where all was drawn,
        else that of "ends". P-values are 1 where a task was stopped: there is none.

    Raises:
        EvalkitError: no tasks, one without samples, or what `sequential_verdicts` refuses.
    """
    if not tasks or any(len(task.differences) == 0 for task in tasks.values()):
        raise EvalkitError("a macro average needs samples of every task")
    alpha = (1.0 - confidence) / 2.0
    deltas = [math.fsum(task.differences) / len(task.differences) for task in tasks.values()]
    state = SequentialVerdict(
        question,
        UNDECIDED,
        None,
        n=sum(len(task.differences) for task in tasks.values()),
        size=sum(task.size for task in tasks.values()),
        delta=math.fsum(deltas) / len(tasks),
        low=-1.0,
        high=1.0,
    )
    whole = all(task.whole for task in tasks.values())
    if whole and question == "benchmark":  # nothing is left to infer
        delta = state.delta
        known = replace(state, low=delta, high=delta, estimate=delta)
        return _decided(known, verdict(delta, delta, margin))
    agreed = _agreed(tasks, margin, question, LOOKS * alpha)
    if whole:
        state, word = _whole(state, tasks, margin, alpha)
    else:
        low, high = _mean_of_ends(tasks, question, ENDS * alpha)
        state = replace(state, low=low, high=high, estimate=(low + high) / 2)
        word = verdict(low, high, margin)
    return _decided(state, agreed if word == UNDECIDED else word)


def _decided(state: SequentialVerdict, word: str) -> SequentialVerdict:
    return replace(state, verdict=word, decided_at=None if word == UNDECIDED else state.n)


def _whole(
    state: SequentialVerdict, tasks: Mapping[str, DrawnTask], margin: float, alpha: float
) -> tuple[SequentialVerdict, str]:
    """All tasks drawn whole: the bounds that hold, at the level of this rule."""
    labels = [name for name, task in tasks.items() for _ in range(task.size)]
    clusters = [
        f"{name} {cluster or k}"
        for name, task in tasks.items()
        for k, cluster in enumerate(task.clusters or [""] * task.size)
    ]
    d = np.concatenate([np.asarray(task.differences, dtype=np.float64) for task in tasks.values()])
    test = valid_test(split(d[None], labels, clusters), 0)
    evidence = weigh([Views(test, test)], margin, END * alpha)
    found = replace(
        state,
        low=evidence.low,
        high=evidence.high,
        estimate=state.delta,
        p_no_worse=min(1.0, evidence.p_no_worse / END),
        p_worse=min(1.0, evidence.p_worse / END),
        p_value=min(1.0, 2.0 * min(evidence.p_better, evidence.p_lower) / END),
    )
    word = Verdict.NO_WORSE if evidence.word.acceptable else evidence.word
    return found, word.value


def _mean_of_ends(
    tasks: Mapping[str, DrawnTask], question: str, alpha: float
) -> tuple[float, float]:
    """Means of the tasks' ends, each wrong with chance alpha / K; tasks drawn whole are known."""
    confidence = 1.0 - 2.0 * alpha / len(tasks)
    states = [
        sequential_verdicts(
            task.differences,
            0.0,
            task.size,
            clusters=list(task.clusters) or None,
            confidence=confidence,
        )[question]
        for task in tasks.values()
    ]
    ends: Floats = np.array([[state.low, state.high] for state in states])
    low, high = ends.mean(axis=0).tolist()
    return low, high


def _agreed(tasks: Mapping[str, DrawnTask], margin: float, question: str, alpha: float) -> str:
    """The verdict that every task's sequence gives against the average's margin."""
    words = {_word(task, margin, question, alpha) for task in tasks.values()}
    return words.pop() if len(words) == 1 else UNDECIDED


def _word(task: DrawnTask, margin: float, question: str, alpha: float) -> str:
    if task.whole and question == "benchmark":
        delta = math.fsum(task.differences) / task.size
        return verdict(delta, delta, margin)
    return sequential_decision(
        task.differences,
        margin,
        task.size,
        question,
        clusters=list(task.clusters) or None,
        confidence=1.0 - 2.0 * alpha,
    )[0]
