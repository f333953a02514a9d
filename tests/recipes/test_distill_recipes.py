"""Every shipped distillation recipe is read, and what the named ones promise."""

from __future__ import annotations

import pytest

from distill.config.train import DistillConfig
from distill.models.load import resolve_checkpoint
from distill.training.evaluation_recipe import command
from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
from evalkit.dsa import ReuseSchedule
from tests.paths import ROOT

FOLDER = ROOT / "recipes" / "distill"
RECIPES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_read_its_arm_is_built_and_its_evaluation_is_there(path, tmp_path):
    config = load(path, DistillConfig)
    model = resolve_checkpoint(config.model, path.parent)
    retention = config.arm.schedule(ReuseSchedule.uniform(24, 1)).retention
    assert retention < 1 or config.arm.selection is not None
    if config.evaluation is not None:
        words = command(config, model, path.parent, tmp_path / "indexer", tmp_path)
        changes = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        run = load(path.parent / config.evaluation, RunConfig, changes)
        names = ["baseline", "baseline again (A/A)", "undistilled", "distilled"]
        assert [arm.name for arm in run.arms] == names
        assert run.compare.repeat_of_baseline == names[1]
        assert run.arms[2].schedule(ReuseSchedule.uniform(24, 1)) == config.arm.schedule(
            ReuseSchedule.uniform(24, 1)
        )
        assert run.arms[2].selection == run.arms[3].selection == config.arm.selection
        assert run.arms[3].indexer == str(tmp_path / "indexer")


def test_the_mli_recipe_is_the_documents():
    config = load(FOLDER / "mli-paper.toml", DistillConfig)
    assert (config.student.start, config.student.first_layer) == ("own", "train")
    assert config.teacher.kind == "indexer"
    assert {entry.kind: entry.weight for entry in config.loss} == {"kl": 0.5, "listmle": 0.5}


def test_the_indexcache_recipe_is_its_multi_layer_loss():
    config = load(FOLDER / "indexcache-loss.toml", DistillConfig)
    assert (config.teacher.kind, config.teacher.combine) == ("attention_dense", "mean")
    assert [entry.kind for entry in config.loss if entry.weight] == ["kl"]
