"""What may not change a result: other arms, order, threads, processes, global random states."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.stats import Design, IntervalOptions, paired_bootstrap, paired_bootstrap_arms

METHODS = ["bca", "percentile", "studentized"]
scores = st.sampled_from([0.0, 0.0, 0.25, 1 / 3, 0.5, 0.7, 1.0, 1.0])
pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=25)


def arms_of(n: int, arms: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    base = np.where(rng.random(n) < 0.3, 0.0, rng.random(n))
    change = rng.random((arms, n)) < 0.3
    return np.vstack([base, np.where(change, rng.random((arms, n)), base)])


@given(pairs, st.sampled_from(METHODS))
@settings(max_examples=60, deadline=None)
def test_swapping_arms_mirrors_the_interval(rows: list, method: str):
    a, b = np.array(rows).T
    one = paired_bootstrap(a, b, method=method, n_resamples=300)
    two = paired_bootstrap(b, a, method=method, n_resamples=300)
    assert one.low == -two.high
    assert one.high == -two.low
    assert one.p_value == two.p_value


@given(pairs, st.sampled_from(METHODS), st.sampled_from([0.125, 0.1, 0.3]))
@settings(max_examples=60, deadline=None)
def test_adding_a_constant_to_both_changes_nothing(rows: list, method: str, shift: float):
    a, b = np.array(rows).T * 0.5
    one = paired_bootstrap(a, b, method=method, n_resamples=300)
    two = paired_bootstrap(a + shift, b + shift, method=method, n_resamples=300)
    assert astuple(one)[1:] == pytest.approx(astuple(two)[1:], abs=2e-9)


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_interval_holds_the_estimate_and_widens_with_confidence(rows: list):
    a, b = np.array(rows).T
    inner = paired_bootstrap(a, b, method="percentile", confidence=0.8, n_resamples=300)
    outer = paired_bootstrap(a, b, method="percentile", confidence=0.99, n_resamples=300)
    assert outer.low <= inner.low <= inner.high <= outer.high


@pytest.mark.parametrize("method", METHODS)
def test_other_arms_and_their_order_change_nothing(method: str):
    matrix = arms_of(157, 7)
    groups = {"strata": np.arange(157) % 3, "clusters": np.arange(157) // 4}
    design, options = Design(**groups), IntervalOptions(method, n_resamples=2000)
    together = paired_bootstrap_arms(matrix, 0, design, options)
    for arm in range(1, 8):
        alone = paired_bootstrap(matrix[arm], matrix[0], n_resamples=2000, method=method, **groups)
        assert alone == together.overall[arm]
    order = [3, 7, 0, 5, 1, 2, 6, 4]
    shuffled = paired_bootstrap_arms(matrix[order], 2, design, options)
    for position, arm in enumerate(order):
        assert shuffled.overall[position] == together.overall[arm]
        assert shuffled.strata["1"][position] == together.strata["1"][arm]


@pytest.mark.parametrize("method", METHODS)
def test_a_varying_arm_does_not_touch_one_that_does_not_vary_in_a_task(method: str):
    matrix = arms_of(60, 2)
    matrix[1, :20] = matrix[0, :20] / 3 + 1 / 7  # differences that are no round numbers
    matrix[0, :20] = matrix[1, :20] - 1 / 7
    strata = np.repeat([0, 1, 2], 20)
    options = IntervalOptions(method, n_resamples=300)
    together = paired_bootstrap_arms(matrix, 0, Design(strata), options)
    alone = paired_bootstrap(matrix[1], matrix[0], strata=strata, method=method, n_resamples=300)
    assert together.overall[1] == alone


@pytest.mark.parametrize("method", METHODS)
def test_order_of_samples_changes_nothing_when_they_are_named(method: str):
    a, b = arms_of(211, 1)[::-1]
    ids = np.array([f"sample {k}" for k in range(211)])
    strata = np.where(np.arange(211) < 60, "short", "long")
    order = np.random.default_rng(1).permutation(211)
    for clusters in (ids, np.arange(211) // 7):
        one = paired_bootstrap(a, b, strata=strata, clusters=clusters, method=method)
        two = paired_bootstrap(
            a[order], b[order], strata=strata[order], clusters=clusters[order], method=method
        )
        assert one == two


def test_a_task_alone_equals_the_task_among_others():
    matrix = arms_of(120, 2)
    strata = np.array(["x", "y", "y"] * 40)
    among = paired_bootstrap_arms(matrix, 0, Design(strata))
    pick = strata == "y"
    alone = paired_bootstrap(matrix[1, pick], matrix[0, pick], strata=strata[pick])
    assert alone == among.strata["y"][1]


def test_seed_decides():
    a, b = arms_of(80, 1)
    assert paired_bootstrap(a, b, seed=1) == paired_bootstrap(a, b, seed=1)
    assert paired_bootstrap(a, b, seed=1) != paired_bootstrap(a, b, seed=2)


def test_strata_of_equal_size_have_independent_streams():
    # with one stream for both, the difference of two equal strata would not vary at all
    d = np.tile([0.5, 0.0, 0.25, 0.125], 25)
    half = np.full(100, 0.5)
    result = paired_bootstrap(
        np.concatenate([half + d, half - d]),
        np.concatenate([half, half]),
        strata=["x"] * 100 + ["y"] * 100,
    )
    assert result.high - result.low > 0.01


def test_no_global_random_state_is_touched():
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    paired_bootstrap(*arms_of(50, 1), method="bca")
    after = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert before == after


def test_same_result_in_another_process_with_other_threads():
    program = (
        "import json, numpy as np\n"
        "from dataclasses import astuple\n"
        "from evalkit.stats import paired_bootstrap\n"
        "x = np.random.default_rng(4).random((2, 333)).round(2)\n"
        "print(json.dumps(astuple(paired_bootstrap(*x, clusters=np.arange(333) // 2))))\n"
    )
    answers = []
    for threads in ("1", "2"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        answers.append(json.loads(done.stdout))
    x = np.random.default_rng(4).random((2, 333)).round(2)
    here = list(astuple(paired_bootstrap(*x, clusters=np.arange(333) // 2)))
    assert answers == [here, here]
