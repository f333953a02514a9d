"""The average of tasks that stop early, and anytime p-values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evalkit.core.errors import EvalkitError
from evalkit.stats import sequential_decision, sequential_verdicts
from evalkit.stats.confidence_sequence import log_capital
from evalkit.stats.sequential_macro import DrawnTask, sequential_macro
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


def test_tasks_drawn_whole_are_tested_at_half_the_level():
    tasks = {"a": equal(200, 200), "b": equal(200, 200)}
    state = sequential_macro(tasks, 0.02, "tasks")
    assert state.low == PairedCounts(0, 0, 400).lower(0.0125)
    assert state.p_no_worse == pytest.approx(2 * PairedCounts(0, 0, 400).p(-0.02))
    assert (state.verdict, state.estimate) == ("no worse", 0.0)
    assert sequential_macro(tasks, 0.0105, "tasks").verdict == "undecided"  # at 2.5 % it would be


def test_a_stopped_task_leaves_two_rules():
    # every task excludes the margin: intersection-union
    both = {"a": equal(120, 300), "b": equal(130, 300)}
    assert sequential_macro(both, 0.08, "tasks").verdict == "no worse"
    # one task is far better than the margin, the other alone is undecided: the mean of the ends
    uneven = {"a": DrawnTask([1.0] * 150, 300), "b": equal(100, 300)}
    assert sequential_decision([0.0] * 100, 0.02, 300, "tasks", confidence=0.975)[0] == "undecided"
    assert sequential_macro(uneven, 0.02, "tasks").verdict == "no worse"
    lost = {"a": DrawnTask([-1.0] * 60, 300), "b": DrawnTask([-1.0] * 40, 300)}
    assert sequential_macro(lost, 0.1, "tasks").verdict == "worse"
    open_ = sequential_macro(uneven, 0.02, "tasks")
    assert open_.low < open_.estimate < open_.high
    assert (open_.p_no_worse, open_.p_value) == (1.0, 1.0)  # there is none


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
            _, at = sequential_decision(d, 0.1, 150, "tasks")
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
