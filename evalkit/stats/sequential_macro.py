"""The verdict on a macro average when tasks are stopped as soon as they are decided.

Nothing is stopped because of the average, so that one of two cases holds, each with half of the
chance of error:

- every task was drawn whole: the average is tested as after a run that never looked. Whether it is
  falsely called no worse then is no likelier than in a run that always draws everything;
- some task was stopped: the average is no worse if every task's sequence excludes a loss of the
  average's margin (if the average loses as much, some task does: intersection-union test), or if
  the mean of the tasks' lower ends does, each at its share of the level (Bonferroni). Half of this
  half goes to each rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.stats.decision import Views, weigh
from evalkit.stats.inputs import Floats, split
from evalkit.stats.one_sided import valid_test
from evalkit.stats.stopping import SequentialVerdict, sequential_decision, sequential_verdicts
from evalkit.stats.verdict import UNDECIDED, Verdict, verdict


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


def sequential_macro(
    tasks: Mapping[str, DrawnTask], margin: float, question: str, *, confidence: float = 0.95
) -> SequentialVerdict:
    """Verdict on the unweighted mean over tasks, against its own margin.

    "No worse" and "worse" are each wrong with probability (1 - confidence) / 2 at most.

    Args:
        tasks: what was drawn of each.
        margin: largest tolerable loss of the average.
        question: a key of `evalkit.stats.QUESTIONS`.
        confidence: two-sided.

    Returns:
        The state of the average. Its p-values are 1 where a task was stopped: there is none.

    Raises:
        EvalkitError: no tasks, one without samples, or what `sequential_verdicts` refuses.
    """
    if not tasks or any(len(task.differences) == 0 for task in tasks.values()):
        raise EvalkitError("a macro average needs samples of every task")
    alpha = (1.0 - confidence) / 2.0
    deltas = [math.fsum(task.differences) / len(task.differences) for task in tasks.values()]
    delta = math.fsum(deltas) / len(tasks)
    drawn = sum(len(task.differences) for task in tasks.values())
    size = sum(task.size for task in tasks.values())
    whole = all(task.whole for task in tasks.values())
    if whole and question == "tasks":
        return _whole(tasks, margin, alpha / 2.0, delta)
    if whole:
        word = verdict(delta, delta, margin)
        at = None if word == UNDECIDED else size
        return SequentialVerdict(
            question, word, at, size, size, delta, delta, delta, estimate=delta
        )
    low, high = _mean_of_ends(tasks, margin, question, alpha / 4.0)
    word = verdict(low, high, margin)
    if word == UNDECIDED:
        word = _agreed(tasks, margin, question, alpha / 4.0)
    at = None if word == UNDECIDED else drawn
    return SequentialVerdict(
        question, word, at, drawn, size, delta, low, high, estimate=(low + high) / 2
    )


def _whole(
    tasks: Mapping[str, DrawnTask], margin: float, alpha: float, delta: float
) -> SequentialVerdict:
    """All tasks drawn whole: the bounds that hold, at the level given."""
    labels = [name for name, task in tasks.items() for _ in range(task.size)]
    clusters = [
        f"{name} {cluster or k}"
        for name, task in tasks.items()
        for k, cluster in enumerate(task.clusters or [""] * task.size)
    ]
    d = np.concatenate([np.asarray(task.differences, dtype=np.float64) for task in tasks.values()])
    test = valid_test(split(d[None], labels, clusters), 0)
    evidence = weigh([Views(test, test)], margin, alpha)
    word = Verdict.NO_WORSE if evidence.word.acceptable else evidence.word
    return SequentialVerdict(
        "tasks",
        word.value,
        None if word is Verdict.UNDECIDED else len(d),
        len(d),
        len(d),
        delta,
        evidence.low,
        evidence.high,
        estimate=delta,
        # half of the level is spent on runs that stop
        p_no_worse=min(1.0, 2.0 * evidence.p_no_worse),
        p_worse=min(1.0, 2.0 * evidence.p_worse),
        p_value=min(1.0, 4.0 * min(evidence.p_better, evidence.p_lower)),
    )


def _state(task: DrawnTask, margin: float, question: str, alpha: float) -> SequentialVerdict:
    """The sequence of one task, each of its claims wrong with chance alpha."""
    clusters = list(task.clusters) or None
    states = sequential_verdicts(
        task.differences, margin, task.size, clusters=clusters, confidence=1.0 - 2.0 * alpha
    )
    return states[question]


def _mean_of_ends(
    tasks: Mapping[str, DrawnTask], margin: float, question: str, alpha: float
) -> tuple[float, float]:
    """Means of the tasks' ends, each wrong with chance alpha / K; tasks drawn whole are known."""
    states = [_state(task, margin, question, alpha / len(tasks)) for task in tasks.values()]
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
