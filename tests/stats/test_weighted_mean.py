"""A weighted mean of tasks: by hand, against another implementation, and its coverage."""

import numpy as np
import pytest

from evalkit.stats import ArmScores, Options, PairedResult, compare
from evalkit.stats.weighted_mean import weighted_difference


def result(delta, low, high):
    return PairedResult(delta, low, high, 1.0, 9, 9, "score", 0.95)


def test_by_hand():
    results = {"a": result(0.1, -0.2, 0.2), "b": result(-0.3, -0.7, 0.1)}
    found = weighted_difference(results, {"a": 0.75, "b": 0.25})
    assert found.delta == pytest.approx(0.0)
    assert found.low == pytest.approx(-np.hypot(0.75 * 0.3, 0.25 * 0.4))
    assert found.high == pytest.approx(np.hypot(0.75 * 0.1, 0.25 * 0.4))


def test_one_task_alone_keeps_its_interval_and_nothing_leaves_the_scale():
    only = {"a": result(0.1, -0.2, 0.3), "b": result(0, -1, 1)}
    assert weighted_difference(only, {"a": 1.0}) == pytest.approx((0.1, -0.2, 0.3))
    wide = {"a": result(-0.9, -1, 1), "b": result(-0.9, -1, 1)}
    assert weighted_difference(wide, {"a": 0.9, "b": 0.1}).low >= -1.0


def arms(rng, sizes):
    tasks = [f"t{k}" for k, n in enumerate(sizes) for _ in range(n)]
    ids = [f"{task}/{i}" for i, task in enumerate(tasks)]
    base = (rng.random(len(ids)) < 0.7).astype(float)
    lost, won = rng.random(len(ids)) < 0.15, rng.random(len(ids)) < 0.1
    arm = np.where(base == 1, 1.0 - lost, won.astype(float))
    made = {"base": base, "arm": arm}
    return {name: ArmScores(ids, tasks, list(scores)) for name, scores in made.items()}


def test_equal_weights_are_newcombes_macro():
    scored = arms(np.random.default_rng(1), (30, 60, 20))
    rows = {
        row.task: row.result
        for row in compare(scored, "base", Options(method="newcombe")).rows
        if row.result
    }
    macro = rows.pop("macro")
    found = weighted_difference(rows, dict.fromkeys(rows, 1 / 3))
    assert found == pytest.approx((macro.delta, macro.low, macro.high))


def test_unequal_weights_cover():
    """P(a loss of .15 of the right ones, a gain of .1 of the wrong ones) = a Δ of -.075."""
    weights = {"t0": 0.6, "t1": 0.3, "t2": 0.1}
    truth, missed, sets = 0.3 * 0.1 - 0.7 * 0.15, 0, 200
    for seed in range(sets):
        scored = arms(np.random.default_rng(seed), (30, 60, 20))
        rows = {row.task: row.result for row in compare(scored, "base").rows if row.result}
        found = weighted_difference(rows, weights)
        missed += not found.low <= truth <= found.high
    assert missed <= 20  # 10 expected at 95 %, P(more than 20) = 0.1 %
