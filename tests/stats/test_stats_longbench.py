"""Paired intervals on two published LongBench runs beside SciPy and sacrebleu."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats as sps

from evalkit.stats import ArmScores, compare, paired_bootstrap
from tests.paths import SHARED

RUNS = SHARED / "data" / "longbench_predictions"
FULL, REUSED = "llama3-8b-instruct", "llama3-8b-instruct_S21-22-23-24"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not RUNS.is_dir(), reason="needs ../shared/data/longbench_predictions"),
]


@pytest.fixture(scope="module")
def tasks() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Per task the scores of both runs, [n] each."""
    found = []
    for run in (REUSED, FULL):
        text = (RUNS / run / "per_sample_official.json").read_text(encoding="utf-8")
        found.append(json.loads(text)["difflib"])
    return {task: (np.array(found[0][task]), np.array(found[1][task])) for task in found[0]}


@pytest.mark.parametrize(("ours", "theirs"), [("percentile", "percentile"), ("bca", "BCa")])
def test_every_task_agrees_with_scipy(tasks: dict, ours: str, theirs: str):
    gaps = []
    for a, b in tasks.values():
        result = paired_bootstrap(a, b, method=ours)
        other = sps.bootstrap(
            (a, b),
            lambda x, y, axis: x.mean(axis) - y.mean(axis),
            paired=True,
            method=theirs,
            n_resamples=10_000,
            batch=500,
            rng=np.random.default_rng(1),
        ).confidence_interval
        ends = np.array([result.low - other.low, result.high - other.high])
        if np.isin(a - b, [-1, 0, 1]).all():  # means move in steps of 1/n
            assert np.max(np.abs(ends)) < 1.01 / len(a)
        else:
            gaps += list(ends * math.sqrt(len(a)) / np.std(a - b))
    # two runs of 10,000 resamples differ by about 0.04 standard errors, more with BCa's bias
    assert np.sqrt(np.mean(np.square(gaps))) < 0.08
    assert np.max(np.abs(gaps)) < 0.25


def test_comparison_of_the_two_runs(tasks: dict):
    def arm(which: int) -> ArmScores:
        ids = [f"{task}/{k}" for task in tasks for k in range(len(tasks[task][which]))]
        flat = [value for pair in tasks.values() for value in pair[which]]
        return ArmScores(ids, [name.split("/")[0] for name in ids], flat)

    table = compare({"full": arm(1), "shared": arm(0)}, "full")
    macro = table.row("shared")
    assert macro.n == 4750
    assert macro.result.delta == pytest.approx(np.mean([np.mean(a - b) for a, b in tasks.values()]))
    # the macro interval from the per-task standard errors, by the normal approximation
    se = math.sqrt(sum(np.var(a - b) / len(a) for a, b in tasks.values())) / len(tasks)
    assert macro.result.low == pytest.approx(macro.result.delta - 1.96 * se, abs=0.1 * se)
    assert macro.result.high == pytest.approx(macro.result.delta + 1.96 * se, abs=0.1 * se)
    assert macro.verdict == "worse"


class MeanScore:
    """A sacrebleu metric whose segments are numbers and whose score is their mean."""

    def _extract_corpus_statistics(self, hypotheses: list, references: object) -> list:
        return [[float(text), 1.0] for text in hypotheses]

    def _aggregate_and_compute(self, stats: list) -> SimpleNamespace:
        return self._compute_score_from_stats(np.asarray(stats, dtype=float).sum(0))

    def _compute_score_from_stats(self, stats: np.ndarray) -> SimpleNamespace:
        return SimpleNamespace(score=float(stats[0] / stats[1]), name="mean")

    def get_signature(self) -> SimpleNamespace:
        return SimpleNamespace(update=lambda key, value: None)


@pytest.mark.parametrize("task", ["trec", "narrativeqa", "passage_count", "qmsum"])
def test_agrees_with_sacrebleu(tasks: dict, task: str):
    reason = "sacrebleu is not installed (the dev extra has it)"
    significance = pytest.importorskip("sacrebleu.significance", reason=reason)
    a, b = tasks[task]
    systems = [
        ("baseline", [repr(float(x)) for x in b]),
        ("arm", [repr(float(x)) for x in a]),
        ("difference", [repr(float(x)) for x in a - b]),
    ]
    metric = {"mean": MeanScore()}
    _, found = significance.PairedTest(systems, metric, None, test_type="bs", n_samples=4000)()
    result = paired_bootstrap(a, b, method="percentile")
    _, _, difference = found["mean"]
    # sacrebleu's interval of one system, given the differences as its segment scores
    assert difference.score == pytest.approx(result.delta)
    half = (result.high - result.low) / 2
    step = 1.01 / len(a) if np.isin(a - b, [-1, 0, 1]).all() else 0.0
    assert difference.ci == pytest.approx(half, rel=0.06, abs=step)
    # its paired p-value is one-sided: P(|d*| - mean |d*| > |d|)
    arm = found["mean"][1]
    if abs(result.delta) * 2 > result.high - result.low:
        assert arm.p_value == pytest.approx(result.p_value / 2, abs=0.01)
