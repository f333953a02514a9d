"""The recipes of the converted SmolLM2 are read, ask for the same arms, and train on other text."""

from __future__ import annotations

import itertools

import pytest

from distill.config.train import DistillConfig
from distill.objective.teacher_assignment import own_attention_teaches, trained_layers
from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
from evalkit.dsa import ReuseSchedule
from evalkit.tasks.registry import build_all
from recipes.smollm2.calibration import ENTRIES, LENGTH, RETRIEVAL_SHARE, documents
from tests.paths import ROOT

FOLDER = ROOT / "recipes" / "smollm2"
NATIVE = ReuseSchedule.uniform(range(30), "1")


@pytest.mark.parametrize("length", [512, 1024])
def test_a_recipe_is_read_and_its_arms_fit_thirty_layers(length):
    config = load(FOLDER / f"{length}.toml", RunConfig)
    names = {task.name for task in build_all(config.tasks, FOLDER)}
    assert {f"niah_single_1@{length}", f"prose@{length}"} <= names
    counts = [len(arm.schedule(NATIVE).full_layers) for arm in config.arms if not arm.indexer]
    assert counts == [30, 30, 15, 8, 4, 30, 30, 15]
    assert config.model is not None and config.model.endswith(f"dsa-{length // 8}")


def test_lags_are_asked_the_same_needles_at_every_retention():
    lags, whole = (load(FOLDER / f"{name}.toml", RunConfig) for name in ("lags", "512"))
    assert (lags.tasks[0], lags.engine, lags.model) == (whole.tasks[0], whole.engine, whole.model)
    schedules = [arm.schedule(NATIVE) for arm in lags.arms]
    asked = [(len(each.full_layers), each.lag) for each in schedules]
    assert asked == [(layers, k) for layers in (30, 15, 8) for k in range(4)]


def test_two_engines_are_asked_the_same_of_the_dense_model():
    local, served = (load(FOLDER / f"dense-{name}.toml", RunConfig) for name in ("hf", "vllm"))
    assert local.tasks == served.tasks and local.model == served.model
    assert (local.engine.kind, served.engine.kind) == ("hf", "openai_server")


def test_both_lengths_compare_the_same_arms():
    short, long = (load(FOLDER / f"{length}.toml", RunConfig) for length in (512, 1024))
    assert short.arms == long.arms and short.compare == long.compare


ARMS = {  # folder below runs/smollm2 to the arm that `make smollm2` trains, and its layers
    "rescue-1-4": ("1/4", 0, 8),
    "rescue-1-8": ("1/8", 0, 4),
    "rescue-lag-2": ("1", 2, 28),
    "rescue-1-2-lag-1": ("1/2", 1, 15),
}


@pytest.mark.parametrize(("name", "arm"), ARMS.items())
def test_a_rescue_trains_the_full_layers_of_an_arm_that_is_evaluated_undistilled_too(name, arm):
    retention, lag, layers = arm
    makefile = (ROOT / "Makefile").read_text()
    (line,) = [line for line in makefile.splitlines() if f"{name}/%: ARM" in line]
    said = [word for word in line.split() if "=" in word and word != "="]
    assert said == [f"arm.retention={retention}"] + ([f"arm.lag={lag}"] if lag else [])
    config = load(FOLDER / "rescue.toml", DistillConfig, said)
    schedule = config.arm.schedule(NATIVE)
    trained = trained_layers(schedule, config.student.first_layer, config.teacher.kind)
    assert len(trained) == layers
    arms = load(FOLDER / "512.toml", RunConfig).arms
    assert any((each.indexer or "").endswith(f"{name}/indexer") for each in arms)
    assert schedule in [each.schedule(NATIVE) for each in arms if not each.indexer]
    assert config.data.exclude


def test_the_warm_up_trains_every_layer_on_its_own_attention():
    config = load(FOLDER / "warm-up.toml", DistillConfig)
    schedule = config.arm.schedule(NATIVE)
    assert own_attention_teaches(schedule, config.teacher.kind)
    assert len(trained_layers(schedule, "train", config.teacher.kind)) == 30


class Words:
    """A tokenizer whose tokens are words."""

    def encode(self, text, **_):
        return text.split()

    def apply_chat_template(self, turns, **_):
        return "\n".join(f"<{turn['role']}> {turn['content']}" for turn in turns)


def test_calibration_text_asks_often_fits_and_speaks_of_other_things_than_the_exams():
    words = [f"word{i}" for i in range(5000)]
    texts = list(itertools.islice(documents([words, words[::-1]], Words()), 200))
    asked = [text for text in texts if text.startswith("<user>")]
    assert len(asked) > 0.75 * RETRIEVAL_SHARE * len(texts) >= 0.3 * len(texts)
    assert all(len(text.split()) <= LENGTH for text in texts)
    for text in asked:
        prompt, _, answer = text.rpartition("<assistant> ")
        digits = "".join(c for c in answer if c.isdigit())
        assert digits in prompt
    wording = " ".join(part for entry in ENTRIES for part in entry).lower()
    assert not {"special", "magic", "number", "code"} & set(wording.split())
    again = list(itertools.islice(documents([words, words[::-1]], Words()), 200))
    assert again == texts


def test_shortcuts_are_compared_on_the_same_prompts():
    cuts, whole = (load(FOLDER / f"{name}.toml", RunConfig) for name in ("shortcuts", "512"))
    *same, longbench = cuts.tasks
    assert (same, cuts.engine, cuts.model) == ([*whole.tasks], whole.engine, whole.model)
    # what SmolLM2's chat template puts around a prompt are some thirty tokens
    assert longbench.kind == "longbench" and longbench.limit + 32 <= 512
    policies = [arm.selection for arm in cuts.arms if arm.selection]
    assert {policy.text.partition(" ")[0] for policy in policies} == {
        "hisa",
        "misa",
        "precision",
        "temporal",
    }
    assert not any(policy.problem(64) for policy in policies)
