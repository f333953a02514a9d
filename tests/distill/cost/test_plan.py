"""distill plan: counts are the model's, estimates scale as they must."""

from __future__ import annotations

import pytest
from transformers import DeepseekV4Config, DeepseekV32Config, GlmMoeDsaConfig
from typer.testing import CliRunner

from distill.cli.main import app
from distill.config.train import DistillConfig
from distill.cost.whole_model import ADAM, estimate, report_lines
from distill.errors import DistillError
from distill.models.sizes import meta_model, sizes_of
from tests.dsa.tiny import v4_options


def recipe(**fields):
    return DistillConfig.model_validate(
        {"model": "x", "arm": {"retention": "1/4"}, "data": {"length": 4096}} | fields
    )


@pytest.fixture(scope="module")
def v32():
    """DeepSeek-V3.2's own sizes, six layers of it."""
    config = DeepseekV32Config(num_hidden_layers=6, first_k_dense_replace=4)
    return sizes_of(meta_model(config))


def test_counts_are_those_of_the_real_model(v32):
    sizes, native = v32
    assert sizes.indexer == 13_959_424  # dsa reference: 13.96 M per layer
    assert (sizes.hidden, sizes.latent, sizes.heads, sizes.width) == (7168, 1536, 64, 128)
    assert sizes.topk == 2048
    assert sizes.outside == 2 * 129_280 * 7168 + 7168
    assert sizes.largest_layer == 11_521_245_440
    assert sizes.attention == 128 * (192 + 128)
    dense, sparse = 597_442_816, 11_521_245_440
    assert sizes.parameters == sizes.outside + 4 * dense + 2 * sparse
    routed = 2 * 256 * 3 * 7168 * 2048
    assert sizes.active == sizes.parameters - routed + routed * 8 // 256
    assert native.pattern == "F" * 6


def test_glm_and_v4_have_sizes():
    sizes, _ = sizes_of(meta_model(GlmMoeDsaConfig(num_hidden_layers=4)))
    assert sizes.indexer == 9_371_904  # 9.37 M
    sizes, native = sizes_of(meta_model(DeepseekV4Config(**v4_options(8))))
    assert sizes.ratio == 4
    assert native.layer_ids == (2, 4, 6)


def test_memory_by_part(v32):
    sizes, native = v32
    cost = estimate(sizes, native, recipe())
    assert cost.trained == (4,)
    assert cost.output == sizes.indexer * 2
    assert cost.in_memory["model"] == sizes.parameters * 2
    assert cost.in_memory["1 students, gradients, AdamW"] == sizes.indexer * ADAM
    assert cost.streamed["one layer (twice while it loads)"] == 4 * sizes.largest_layer
    assert sum(cost.streamed.values()) < sum(cost.in_memory.values())


def test_nothing_grows_with_the_square_of_the_length(v32):
    sizes, native = v32
    short = estimate(sizes, native, recipe())
    longer = estimate(sizes, native, recipe(data={"length": 8192}))
    for before, after in (
        (short.in_memory, longer.in_memory),
        (short.streamed, longer.streamed),
        (short.disk, longer.disk),
    ):
        for name, size in before.items():
            assert size <= after[name] <= 2 * size, name
    scores = "scores: students (3 products) and teachers"
    assert longer.flop[scores] == pytest.approx(2 * short.flop[scores])


def test_masked_attention_does():
    sizes, native = sizes_of(meta_model(DeepseekV4Config(**v4_options(12))))
    half = {"arm": {"retention": "1/2"}}
    short, longer = (
        estimate(sizes, native, recipe(data={"length": n}, **half)).in_memory for n in (4096, 8192)
    )
    name = "attention scores of all pairs of tokens"
    assert short[name] == 4 * 4 * 4 * 4096 * 5120 * 2  # copies, heads, batch, pairs, bf16
    assert longer[name] == 4 * short[name]


def test_the_command_takes_a_recipe_and_a_configuration(checkpoint, tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(f'model = "{checkpoint}"\n[arm]\nretention = "1/4"\n')
    result = CliRunner().invoke(app, ["plan", str(path), "--hardware", "cpu"])
    assert result.exit_code == 0, result.output
    assert "the indexers of layers 4 train" in result.output
    assert "fits 16 GiB" in result.output
    bare = ["plan", str(checkpoint), "--set", "arm.retention=1/2", "--memory", "0.000001"]
    result = CliRunner().invoke(app, bare)
    assert result.exit_code == 0, result.output
    assert "does not fit" in result.output
    result = CliRunner().invoke(app, ["plan", str(path), "--hardware", "abacus"])
    assert isinstance(result.exception, DistillError)


def test_words(v32):
    sizes, native = v32
    cost = estimate(sizes, native, recipe())
    text = "\n".join(report_lines(cost, sizes, memory=141, tflops=989.0, efficiency=0.35, disk=2.0))
    assert "13,959,424 of" in text
    assert "fits 141 GiB" in text
