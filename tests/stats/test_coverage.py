"""The default method keeps its promise in small versions of benchmarks/coverage.py."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from evalkit.stats import ArmScores, Design, IntervalOptions, Options, compare, paired_arms
from evalkit.stats.methods import METHODS
from tests.paths import ROOT

BOUNDS = ("auto", "exact", "gaffke")  # in the table of verdicts


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


def test_the_table_of_the_document_has_every_method():
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    names = [name for name in METHODS if name not in BOUNDS]
    assert f"| situation | n | {' | '.join(names)} | no clusters |" in text


def printed(command: list[str]) -> str:
    """What a benchmark prints."""
    script, *options = command
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "nan" not in done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "interval_methods.py --datasets 250 --bootstraps 250 --resamples 99 --n 50",
        "stopping.py --runs 20 --size 100 --macro-runs 10",
        "bootstrap_speed.py --arms 2 --n 200 --resamples 500 --repeats 1",
    ],
)
def test_benchmarks_run(command: str):
    assert printed(command.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows",
    [
        "right/wrong, n 100, 0",
        "graded, n 200",
        "F1, rare changes, n 50",
        "10 haystacks of 40, ICC 0.2",
        "30 haystacks of 20, ICC 1",
        "100 haystacks of 4 to 16",
        "3 tasks of 60",
        "20 to 500, loss in the smallest",
        "20 to 500, loss as 1/n",
        "12 haystacks of 5",
        "failed",
        "second run",
    ],
)
def test_false_verdicts_in_a_quick_version_of_the_coverage_table(rows: str):
    sizes = ["--datasets", "300", "--power", "20", "--textbook", "50", "--only"]
    lines = printed(["coverage.py", *sizes, rows]).splitlines()
    cells = [line.split(" | ") for line in lines if line.startswith("|") and rows in line]
    assert cells
    # four standard errors of 2.5 % in 300 data sets are 3.6 points: many cells are looked at
    for name, _n, _margin, no_worse, worse, *_rest in cells:
        assert float(no_worse) < 6.1, name
        assert float(worse) < 6.1, name


def false_claims(family: str, runs: int) -> float:
    """Share of runs with any false "no worse" among twelve arms that lose exactly the margin."""
    rng, wrong, n = np.random.default_rng(0), 0, 200
    ids, tasks = [str(k) for k in range(n)], ["qa"] * n
    options = Options(margin=0.05, family=family)
    for _ in range(runs):
        arms = {"base": ArmScores(ids, tasks, [1.0] * n)}
        for k in range(12):
            arms[str(k)] = ArmScores(ids, tasks, (rng.random(n) >= 0.05).astype(float).tolist())
        rows = compare(arms, "base", options).rows
        wrong += any(row.verdict == "no worse" for row in rows if row.arm != "base")
    return wrong / runs


@pytest.mark.slow
def test_twelve_arms_at_the_margin_are_rarely_called_no_worse_as_a_family():
    assert false_claims("each", 300) > 0.1  # one arm in forty each
    assert false_claims("all", 300) < 0.025 + 3 * (0.025 * 0.975 / 300) ** 0.5
