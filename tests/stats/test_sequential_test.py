"""The test of tasks that stop early: one task, their average, anytime p-values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from evalkit.core.errors import EvalkitError
from evalkit.stats import Drawing, DrawnTask, SequentialTest, looking_confidence
from evalkit.stats import sequential_decision as decision
from evalkit.stats.confidence_sequence import log_capital
from evalkit.stats.decision import Evidence, Views, weigh
from evalkit.stats.inputs import split
from evalkit.stats.one_sided import valid_test
from evalkit.stats.trinomial import PairedCounts

ALPHA = 0.025


def drawn(d: Sequence[float], size: int, clusters: Sequence[str] = ()) -> DrawnTask:
    return DrawnTask(np.asarray(d, dtype=np.float64), size, clusters)


def equal(n: int, size: int) -> DrawnTask:
    return drawn([0.0] * n, size)


def macro(tasks: Mapping[str, DrawnTask], margin: float, question: str = "tasks") -> Evidence:
    """Evidence about the average, with the end bound where all was drawn."""
    end = None
    if all(task.whole for task in tasks.values()):
        labels = [name for name, task in tasks.items() for _ in range(task.size)]
        clusters = [
            f"{name} {cluster or k}"
            for name, task in tasks.items()
            for k, cluster in enumerate(task.clusters or [""] * task.size)
        ]
        d = np.concatenate([task.differences for task in tasks.values()])
        end = valid_test(split(d[None], labels, clusters), 0)
    test = SequentialTest(tuple(tasks.values()), question, ALPHA, end)
    return weigh([Views(test, test)], margin, ALPHA)


def test_the_average_has_its_own_margin():
    # S4: both tasks lose 2.5 points and are no worse by their own margin of 10
    d = ([-1.0] + [0.0] * 39) * 10
    tasks = {"a": drawn(d, 400), "b": drawn(d, 400)}
    for task in tasks.values():
        assert decision(task.differences, 0.1, 400, "tasks")[0] == "no worse"
    assert macro(tasks, 0.01).word == "worse"
    assert macro(tasks, 0.01).against[0].worst.mean == pytest.approx(-0.025)
    assert macro(tasks, 0.05).word == "no worse"


def test_tasks_drawn_whole_are_tested_at_their_share_of_the_level():
    tasks = {"a": equal(200, 200), "b": equal(200, 200)}
    state = macro(tasks, 0.02)
    assert state.low == PairedCounts(0, 0, 400).lower(0.4 * 0.025)
    assert state.p_no_worse == pytest.approx(PairedCounts(0, 0, 400).p(-0.02) / 0.4)
    assert (state.word, state.against[0].worst.mean) == ("no worse", 0.0)
    assert macro(tasks, 0.0105).word == "undecided"  # at 2.5 % it would be
    assert state.method == "sequence"


def test_tasks_that_all_stopped_for_one_margin_decide_the_average_for_it():
    # each task is stopped by the rule itself, so that rows and average agree
    tasks = {}
    for name in "abc":
        _, at = decision([0.0] * 300, 0.05, 300, "tasks", confidence=looking_confidence(0.95))
        tasks[name] = equal(at, 300)
    found = macro(tasks, 0.05)
    assert found.word == "no worse"
    assert found.low > -0.05
    assert macro(tasks, 0.04).word == "undecided"
    assert looking_confidence(0.95) == pytest.approx(0.975)


def test_one_task_that_collapses_is_enough():
    tasks = {name: equal(250, 300) for name in "abc"}
    tasks["d"] = drawn([-1.0] * 60, 300)
    state = macro(tasks, 0.05)
    middle = state.against[0].worst.mean
    assert state.word == "worse"
    assert state.low < middle < state.high < -0.05
    assert (state.p_no_worse, state.p_worse) == (1.0, ALPHA)


def test_one_task_alone_keeps_the_verdict_of_its_sequence():
    d = [-1.0] * 20 + [0.0] * 180
    assert decision(d, 0.05, 200, "tasks", confidence=0.975)[0] == "worse"
    assert macro({"a": drawn(d, 200)}, 0.05).word == "worse"
    # and where the sequence left it open, the end may decide
    rng = np.random.default_rng(0)
    d = np.where(rng.random(400) < 0.02, -1.0, 0.0).tolist()
    assert decision(d, 0.05, 400, "tasks", confidence=0.975)[0] == "undecided"
    assert macro({"a": drawn(d, 400)}, 0.05).word == "no worse"


def test_interval_and_word_agree():
    rng = np.random.default_rng(5)
    for loss in (0.0, 0.02, 0.1, 0.3):
        d = np.where(rng.random(150) < loss, -1.0, np.where(rng.random(150) < 0.05, 1.0, 0.0))
        for n in (20, 60, 100):
            found = macro({"a": drawn(d[:n], 150)}, 0.05)
            assert (found.word in ("no worse", "better")) == (found.low > -0.05)
            assert (found.word == "worse") == (found.high < -0.05)
            assert found.low < found.against[0].worst.mean < found.high


def test_the_whole_benchmark_is_known_when_it_is_drawn():
    tasks = {"a": drawn([-1.0] + [0.0] * 99, 100), "b": equal(50, 50)}
    state = macro(tasks, 0.01, "benchmark")
    assert (state.low, state.high, state.word) == (-0.005, -0.005, "no worse")
    assert macro(tasks, 0.005, "benchmark").word == "undecided"
    part = {**tasks, "b": equal(40, 50)}
    state = macro(part, 0.2, "benchmark")
    assert state.low < -0.005 < state.high
    assert state.word == "no worse"


def test_clusters_are_the_units_of_the_average_too():
    clusters = [f"h{k // 20}" for k in range(200)]
    tasks = {"a": drawn([0.0] * 200, 200, clusters), "b": equal(200, 200)}
    state = macro(tasks, 0.05)
    assert state.word == "undecided"
    assert state.low < -0.15  # a whole haystack of ten may be lost


def test_another_question_is_refused():
    with pytest.raises(EvalkitError, match="benchmark, tasks"):
        Drawing("tomorrow", {}, {})


@pytest.mark.parametrize("losses", [(0.1, 0.1), (0.2, 0.0)])
def test_false_verdicts_of_the_average_at_its_margin(losses: tuple[float, ...]):
    rng, wrong, runs = np.random.default_rng(0), 0, 300
    for _ in range(runs):
        tasks = {}
        for name, loss in zip("ab", losses, strict=True):
            u = rng.random(150)
            d = np.where(u < 0.02, 1.0, np.where(u > 0.98 - loss, -1.0, 0.0))
            _, at = decision(d, 0.1, 150, "tasks", confidence=0.975)
            tasks[name] = drawn(d[: 150 if at is None else at], 150)
        wrong += macro(tasks, 0.1).word != "undecided"
    assert wrong / runs < 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_anytime_p_values_are_the_inverse_of_the_largest_capital():
    rng = np.random.default_rng(3)
    d = rng.choice([-1.0, 0.0, 1.0], 120, p=[0.25, 0.7, 0.05])
    task, x = drawn(d, 400), (d + 1) / 2
    capital = math.exp(log_capital(1 - x, np.array([1 - 0.475]), None, 0.95).max())
    p_worse = task.mirrored().p(0.05, "tasks", ALPHA)
    assert p_worse == pytest.approx(min(1.0, 1 / capital))
    assert task.p(-0.05, "tasks", ALPHA) == 1.0
    assert (p_worse <= 0.025) == (decision(d, 0.05, 400, "tasks")[0] == "worse")


def test_a_p_value_does_not_grow_with_more_looks():
    values = [equal(n, 200).p(-0.05, "tasks", ALPHA) for n in (20, 60, 120, 200)]
    assert values == sorted(values, reverse=True)
    known = equal(200, 200)
    assert (known.p(-0.05, "benchmark", ALPHA), known.p(0.0, "benchmark", ALPHA)) == (0.0, 1.0)
