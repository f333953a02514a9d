"""What the shipped model is for: it answers, it has a cliff, and so the demo shows something."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalkit.analysis.compare import compare_run, comparison_rows
from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
from evalkit.run.plan import plan
from evalkit.run.runner import run
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore

RECIPE = Path("recipes/eval/demo.toml")
ARMS = ("baseline", "IndexCache 1/4", "IndexCache 1/8")


@pytest.mark.slow
def test_the_demo_models_curve_and_cliff(tmp_path):
    config = load(RECIPE, RunConfig, ["compare.repeat_of_baseline='baseline'"])
    arms = tuple(arm for arm in config.arms if arm.name in ARMS)
    todo = plan(config.model_copy(update={"arms": arms}), RECIPE.resolve().parent, limit=40)
    store = RunStore(tmp_path / "run")
    with store.lock():
        run(todo, store)
        score_run(store)
    score = {(r.arm, r.task): r.score for r in comparison_rows(compare_run(store))}
    for task in ("needle@512", "niah_single_1@512", "niah_multikey_2@512"):
        assert score["baseline", task] >= 0.95
        assert score["IndexCache 1/4", task] >= 0.9
        assert score["IndexCache 1/8", task] <= 0.4
    assert {entry.engagement for entry in store.read_run().arms} == {"engaged"}
