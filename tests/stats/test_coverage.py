"""The default method keeps its promise in small versions of benchmarks/coverage.py."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from evalkit.stats import Design, IntervalOptions, paired_arms
from tests.paths import ROOT


def share_covered(d: np.ndarray, truth: float, design: Design | None = None, **options) -> float:
    matrix = np.vstack([np.full(d.shape[1], 0.5), 0.5 + d / 2])
    results = paired_arms(matrix, 0, design, IntervalOptions(**options)).overall[1:]
    return float(
        np.mean([2 * r.low <= truth + 1e-9 and 2 * r.high >= truth - 1e-9 for r in results])
    )


# 2,000 data sets: three standard errors of 95 % are 1.5 points


def test_rare_losses_of_graded_scores():
    rng = np.random.default_rng(0)
    d = np.where(rng.random((2000, 200)) < 0.06, -rng.beta(2.0, 1.0, (2000, 200)), 0.0)
    assert share_covered(d, -0.04) > 0.935
    assert share_covered(d, -0.04, method="t") < 0.935  # what the default is better than


def test_right_wrong_scores_near_one():
    u = np.random.default_rng(1).random((2000, 200))
    d = np.where(u < 0.005, 1.0, np.where(u > 0.945, -1.0, 0.0))
    assert share_covered(d, -0.05) > 0.935


@pytest.mark.parametrize("method", ["auto", "bca"])
def test_five_clusters(method: str):
    rng = np.random.default_rng(2)
    sets = 1000
    clusters = np.repeat(np.arange(5), [12, 16, 20, 24, 28])
    d = rng.normal(0, 0.1, (sets, 5))[:, clusters] + rng.normal(0, 0.1, (sets, 100))
    design = Design(clusters=clusters)
    covered = share_covered(d.clip(-1, 1), 0.0, design, method=method, n_resamples=500)
    assert (covered > 0.93) if method == "auto" else (covered < 0.9)


def test_macro_average_of_unequal_tasks():
    rng = np.random.default_rng(3)
    sizes = [20, 30, 50, 80, 120]
    strata = np.repeat(np.arange(5), sizes)
    loss = np.array([0.02, 0.05, 0.1, 0.0, 0.2])[strata]
    u = rng.random((2000, len(strata)))
    d = np.where(u < loss + 0.02, -1.0, np.where(u > 0.98, 1.0, 0.0))
    covered = share_covered(d, -np.mean([0.02, 0.05, 0.1, 0.0, 0.2]), Design(strata))
    assert 0.935 < covered < 0.975


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        [
            "coverage.py",
            "--datasets",
            "250",
            "--bootstraps",
            "250",
            "--resamples",
            "99",
            "--n",
            "50",
        ],
        ["stopping.py", "--runs", "20", "--size", "100"],
        ["bootstrap_speed.py", "--arms", "2", "--n", "200", "--resamples", "500", "--repeats", "1"],
    ],
)
def test_benchmarks_run(command: list[str]):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "nan" not in done.stdout
