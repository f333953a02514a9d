"""The average of tasks that stop early, and anytime p-values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evalkit.core.errors import EvalkitError
from evalkit.stats import sequential_decision, sequential_verdicts
from evalkit.stats.confidence_sequence import log_capital
from evalkit.stats.sequential_macro import DrawnTask, looking_confidence, sequential_macro
from evalkit.stats.trinomial import PairedCounts


def equal(n: int, size: int) -> DrawnTask:
    return DrawnTask([0.0] * n, size)


def test_the_average_has_its_own_margin():
    # both tasks lose 2.5 points and are no worse by their own margin of 10
    d = ([-1.0] + [0.0] * 39) * 10
    tasks = {"a": DrawnTask(d, 400), "b": DrawnTask(d, 400)}
    for task in tasks.values():
        own = sequential_verdicts(task.differences, 0.1, 400)["tasks"]
        assert own.verdict == "no worse"
    state = sequential_macro(tasks, 0.01, "tasks")
    assert state.verdict == "worse"
    assert state.delta == pytest.approx(-0.025)
    assert sequential_macro(tasks, 0.05, "tasks").verdict == "no worse"


def test_tasks_drawn_whole_are_tested_at_their_share_of_the_level():
    tasks = {"a": equal(200, 200), "b": equal(200, 200)}
    state = sequential_macro(tasks, 0.02, "tasks")
    assert state.low == PairedCounts(0, 0, 400).lower(0.4 * 0.025)
    assert state.p_no_worse == pytest.approx(PairedCounts(0, 0, 400).p(-0.02) / 0.4)
    assert (state.verdict, state.estimate) == ("no worse", 0.0)
    assert sequential_macro(tasks, 0.0105, "tasks").verdict == "undecided"  # at 2.5 % it would be


def test_tasks_that_all_stopped_for_one_margin_decide_the_average_for_it():
    # each task is stopped by the rule itself, so that rows and average agree
    drawn = {}
    for name in "abc":
        _, at = sequential_decision(
            [0.0] * 300, 0.05, 300, "tasks", confidence=looking_confidence(0.95)
        )
        drawn[name] = equal(at, 300)
    assert sequential_macro(drawn, 0.05, "tasks").verdict == "no worse"
    assert sequential_macro(drawn, 0.04, "tasks").verdict == "undecided"
    assert looking_confidence(0.95) == pytest.approx(0.975)


def test_one_task_that_collapses_is_enough():
    tasks = {name: equal(250, 300) for name in "abc"}
    tasks["d"] = DrawnTask([-1.0] * 60, 300)
    state = sequential_macro(tasks, 0.05, "tasks")
    assert state.verdict == "worse"
    assert state.low < state.estimate < state.high < -0.05
    assert (state.p_no_worse, state.p_value) == (1.0, 1.0)  # there is none


def test_one_task_alone_keeps_the_verdict_of_its_sequence():
    d = [-1.0] * 20 + [0.0] * 180
    assert sequential_decision(d, 0.05, 200, "tasks", confidence=0.975)[0] == "worse"
    assert sequential_macro({"a": DrawnTask(d, 200)}, 0.05, "tasks").verdict == "worse"
    # and where the sequence left it open, the end may decide
    rng = np.random.default_rng(0)
    d = np.where(rng.random(400) < 0.02, -1.0, 0.0).tolist()
    assert sequential_decision(d, 0.05, 400, "tasks", confidence=0.975)[0] == "undecided"
    assert sequential_macro({"a": DrawnTask(d, 400)}, 0.05, "tasks").verdict == "no worse"


def test_the_whole_benchmark_is_known_when_it_is_drawn():
    tasks = {"a": DrawnTask([-1.0] + [0.0] * 99, 100), "b": equal(50, 50)}
    state = sequential_macro(tasks, 0.01, "benchmark")
    assert (state.low, state.high, state.verdict) == (-0.005, -0.005, "no worse")
    assert sequential_macro(tasks, 0.005, "benchmark").verdict == "undecided"
    part = {**tasks, "b": equal(40, 50)}
    state = sequential_macro(part, 0.2, "benchmark")
    assert state.low < -0.005 < state.high
    assert state.verdict == "no worse"


def test_clusters_are_the_units_of_the_average_too():
    clusters = [f"h{k // 20}" for k in range(200)]
    tasks = {"a": DrawnTask([0.0] * 200, 200, clusters), "b": equal(200, 200)}
    state = sequential_macro(tasks, 0.05, "tasks")
    assert state.verdict == "undecided"
    assert state.low < -0.15  # a whole haystack of ten may be lost


def test_refusals():
    for tasks in ({}, {"a": DrawnTask([], 10)}):
        with pytest.raises(EvalkitError, match="samples of every task"):
            sequential_macro(tasks, 0.1, "tasks")


@pytest.mark.parametrize("losses", [(0.1, 0.1), (0.2, 0.0)])
def test_false_verdicts_of_the_average_at_its_margin(losses: tuple[float, ...]):
    rng, wrong, runs = np.random.default_rng(0), 0, 300
    for _ in range(runs):
        tasks = {}
        for name, loss in zip("ab", losses, strict=True):
            u = rng.random(150)
            d = np.where(u < 0.02, 1.0, np.where(u > 0.98 - loss, -1.0, 0.0))
            _, at = sequential_decision(d, 0.1, 150, "tasks", confidence=0.975)
            tasks[name] = DrawnTask(d[: 150 if at is None else at].tolist(), 150)
        wrong += sequential_macro(tasks, 0.1, "tasks").verdict != "undecided"
    assert wrong / runs < 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_anytime_p_values_are_the_inverse_of_the_largest_capital():
    rng = np.random.default_rng(3)
    d = rng.choice([-1.0, 0.0, 1.0], 120, p=[0.25, 0.7, 0.05])
    state = sequential_verdicts(d, 0.05, 400)["tasks"]
    x = (d + 1) / 2
    capital = math.exp(log_capital(1 - x, np.array([1 - 0.475]), None, 0.95).max())
    assert state.p_worse == pytest.approx(min(1.0, 1 / capital))
    assert state.p_no_worse == 1.0
    assert (state.p_worse <= 0.025) == (state.verdict == "worse")
    assert state.p_value <= 0.05
    assert state.estimate == pytest.approx((state.low + state.high) / 2)


def test_a_p_value_does_not_grow_with_more_looks():
    d = np.zeros(200)
    values = [sequential_verdicts(d[:n], 0.05, 200)["tasks"].p_no_worse for n in (20, 60, 120, 200)]
    assert values == sorted(values, reverse=True)
    known = sequential_verdicts(d, 0.05, 200)["benchmark"]
    assert (known.p_no_worse, known.p_worse, known.p_value) == (0.0, 1.0, 1.0)
