"""The recipes of the converted SmolLM2 are read and ask for the same arms at both lengths."""

import pytest

from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
from evalkit.dsa import ReuseSchedule
from evalkit.tasks.registry import build_all
from tests.paths import ROOT

FOLDER = ROOT / "recipes" / "smollm2"


@pytest.mark.parametrize("length", [512, 1024])
def test_a_recipe_is_read_and_its_arms_fit_thirty_layers(length):
    config = load(FOLDER / f"{length}.toml", RunConfig)
    names = {task.name for task in build_all(config.tasks, FOLDER)}
    assert {f"niah_single_1@{length}", f"qa_1@{length}"} <= names
    native = ReuseSchedule.uniform(range(30), "1")
    counts = [len(arm.schedule(native).full_layers) for arm in config.arms]
    assert counts == [30, 30, 15, 8, 4, 30, 30]
    assert config.model is not None and config.model.endswith(f"dsa-{length // 8}")


def test_both_lengths_compare_the_same_arms():
    short, long = (load(FOLDER / f"{length}.toml", RunConfig) for length in (512, 1024))
    assert short.arms == long.arms and short.compare == long.compare
