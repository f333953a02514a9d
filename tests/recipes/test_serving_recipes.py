"""The shipped serving recipes: exact for their models, startable, and run dry with the oracle."""

from __future__ import annotations

import json
import shlex

import pytest

from evalkit.cli.check_text import check_lines
from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
from evalkit.dsa import layout
from evalkit.dsa.engine_config.export import from_freq, read
from evalkit.dsa.engine_config.published_patterns import published_pattern
from evalkit.dsa.engine_config.released_models import known_config, known_models
from evalkit.run.store import RunStore
from tests.checkpoints import paper
from tests.engagement.test_check import evalkit
from tests.paths import ROOT

FOLDER = ROOT / "recipes" / "serving"
RECIPES = sorted(FOLDER.glob("*.toml"))
MODELS = {path: load(path, RunConfig).model for path in RECIPES}


def test_every_model_of_the_issue_has_both_engines():
    names = {path.stem for path in RECIPES}
    for model in ("deepseek-v3.2", "glm-5", "glm-5.2", "deepseek-v4-flash"):
        assert {f"{model}-sglang", f"{model}-vllm"} <= names
    assert {f"{m}-mli-vllm" for m in ("deepseek-v3.2", "glm-5", "deepseek-v4-flash")} <= names


def test_layers_of_released_models():
    """Counts from their config.json; GLM-5.2 ships 57 shared layers, V4-Flash 21 indexers."""
    found = {name: layout(config) for name, config in known_models().items()}
    counts = {name: (made.num_layers, len(made.layer_ids)) for name, made in found.items()}
    assert counts["deepseek-ai/DeepSeek-V3.2"] == (61, 61)
    assert counts["zai-org/GLM-5"] == (78, 78)
    assert counts["deepseek-ai/DeepSeek-V4-Flash"] == (43, 21)
    assert found["deepseek-ai/DeepSeek-V4-Flash"].layer_ids == tuple(range(2, 43, 2))
    assert found["zai-org/GLM-5.2"].native.full_layer_ids[:5] == (0, 1, 2, 6, 10)
    assert len(found["zai-org/GLM-5.2"].native.full_layers) == 21
    assert found["zai-org/GLM-5.3"] == found["zai-org/GLM-5.2"]
    # The fields beside it say the same.
    config = known_config("zai-org/GLM-5.2")
    rule = from_freq(78, config["index_topk_freq"], engine="sglang", offset=3)
    assert rule == found["zai-org/GLM-5.2"].native
    assert known_config("some/model") is None


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_start_lines_make_the_engine_run_the_arm(path):
    """Every override, read back by that engine's own rules, keeps the arm's very layers."""
    config = load(path, RunConfig)
    made = layout(known_config(config.model))
    for arm in config.arms:
        schedule = arm.schedule(made.native)
        header, line = check_lines(None, path, arm.name, None, None)
        assert header.startswith(f"# {arm.name}: {len(schedule.full_layers)} of {len(schedule)}")
        words = shlex.split(line)
        assert config.model in words
        assert not line.startswith("(")  # a reason in place of a start line
        capture = "--enable-return-indexer-topk" in words
        assert not capture or "--enable-dp-attention" in words  # it asserts attention TP 1
        options = ("--json-model-override-args", "--hf-overrides")
        overrides = [words[i + 1] for i, word in enumerate(words) if word in options]
        custom = arm.server.engine == "custom"
        if arm.server.engine == "vllm-plugin":
            assert f"EVALKIT_SCHEDULE={schedule}" in words
            assert overrides == []
            continue
        if arm.is_native and not arm.server.enabled:
            assert overrides == []
            continue
        if custom and schedule.computes == made.native.computes:
            continue  # the lag is the build's own business
        engine = "sglang" if custom else arm.server.engine
        own = known_config(config.model)
        got = read(
            own,
            engine=engine,
            layers=made.layer_ids,
            native=made.native,
            overrides=json.loads(overrides[0]),
        )
        assert got.schedule.computes == schedule.computes


def test_frequencies_are_those_of_the_engine():
    for name, engine, layers in (
        ("deepseek-v3.2-sglang", "sglang", 61),
        ("deepseek-v3.2-vllm", "vllm", 61),
        ("glm-5-sglang", "sglang", 78),
        ("deepseek-v4-flash-sglang", "ascend-sglang-v4", range(2, 43, 2)),
        ("deepseek-v4-flash-vllm", "vllm-ascend-v4", range(2, 43, 2)),
    ):
        config = load(FOLDER / f"{name}.toml", RunConfig)
        arms = {arm.name: arm for arm in config.arms}
        ids = layers if isinstance(layers, int) else tuple(layers)
        for freq in (2, 4):
            wanted = from_freq(ids, freq, engine=engine).pattern
            assert arms[f"freq {freq}"].pattern == wanted
    config = load(FOLDER / "glm-5-sglang.toml", RunConfig)
    searched = next(arm for arm in config.arms if arm.name == "searched 1/4")
    assert searched.pattern == published_pattern("glm-5-1/4").pattern
    # Nothing that GLM-5.2 lacks an indexer for may be full.
    native = published_pattern("glm-5.2-native").pattern
    for arm in load(FOLDER / "glm-5.2-vllm.toml", RunConfig).arms:
        pairs = zip(arm.pattern or native, native, strict=True)
        assert all(theirs == "F" for ours, theirs in pairs if ours == "F")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_dry_run_with_the_oracle(path, tmp_path):
    model = paper(tmp_path / "model", **known_config(MODELS[path]))
    settings = [f"model={model}", "engine.kind=oracle", "compare.resamples=100"]
    settings += ["tasks.graphwalk.lengths=[1024]", "tasks.ruler.lengths=[2048]"]
    options = [word for setting in settings for word in ("--set", setting)]
    out = tmp_path / "run"
    assert evalkit("run", path, "--out", out, "--limit", "1", *options) == 0
    config = load(path, RunConfig)
    store = RunStore(out)
    for entry, arm in zip(store.read_run().arms, config.arms, strict=True):
        assert entry.name == arm.name
        assert entry.schedule.layer_ids == layout(known_config(config.model)).layer_ids
        assert len(store.read_scores(arm.name)) == len(store.read_items()) == 4
