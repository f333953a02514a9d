"""distill plan: counts are the model's, estimates scale as they must."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformers import DeepseekV4Config, DeepseekV32Config, GlmMoeDsaConfig
from typer.testing import CliRunner

from distill.cli.main import app
from distill.config.train import DistillConfig
from distill.cost.whole_model import ADAM, Hardware, estimate, report_lines
from distill.errors import DistillError
from distill.models.sizes import meta_model, sizes_of
from tests.dsa.tiny import v4_options

ONE = Hardware(memory=141, tflops=989.0, efficiency=0.35, disk=2.0)


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
    text = "\n".join(report_lines(cost, sizes, ONE))
    assert "13,959,424 of" in text
    assert "fits 141 GiB" in text


def test_fp8_is_counted_as_fp8(v32):
    """All matrices of a layer but router and head weights: one byte, and 4 per 128 x 128 block."""
    config = DeepseekV32Config(
        num_hidden_layers=6,
        first_k_dense_replace=4,
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    )
    sizes, native = sizes_of(meta_model(config))
    norms = 2 * 7168 + 1536 + 512 + 2 * 128
    head_weights, router = 64 * 7168, 256 * 7168
    dense = 597_442_816 - norms - head_weights
    sparse = 11_521_245_440 - norms - head_weights - router
    assert sizes.quantised == 4 * dense + 2 * sparse
    plain = v32[0]
    assert plain.quantised == 0
    assert plain.stored(2) == 2 * plain.parameters
    rest = sizes.parameters - sizes.quantised
    assert sizes.stored(2) == 2 * rest + sizes.quantised + sizes.quantised * 4 // 128**2
    fp8, bf16 = (estimate(s, native, recipe()) for s in (sizes, plain))
    assert fp8.layers_read == bf16.layers_read
    by_layer = (plain.stored(2) - sizes.stored(2)) / 6
    assert bf16.bytes_read - fp8.bytes_read == pytest.approx(by_layer * fp8.layers_read, rel=1e-6)
    assert sum(fp8.in_memory.values()) == sum(bf16.in_memory.values())  # dequantised as it loads
    text = "\n".join(report_lines(fp8, sizes, ONE))
    assert "93% of it FP8" in text
    assert "model, dequantised" in text


def test_several_devices_hold_the_whole_model_and_share_what_is_compared(v32):
    sizes, native = v32
    cost = estimate(sizes, native, recipe())
    assert cost.compared == 7  # evaluations: at the start, and 6 times in 120 steps
    lines = list(report_lines(cost, sizes, replace(ONE, devices=8)))
    (whole,) = (line for line in lines if line.startswith("memory, whole model"))
    (streamed,) = (line for line in lines if line.startswith("memory, layer by layer"))
    assert whole.endswith("1128 GiB on 8 devices")
    assert streamed.endswith("141 GiB on 1 device")
    (shared,) = (line for line in lines if "8 devices at best" in line)
    assert "7 states that are compared are independent" in shared
    assert not any("at best" in line for line in report_lines(cost, sizes, ONE))


def test_compute_layer_by_layer_is_that_of_the_layers_it_goes_through(v32):
    """Without choices by logits: the original to its last teacher, the arm to the full layer."""
    sizes, native = v32
    config = recipe(
        arm={"retention": "1/2"},
        data={"length": 4096, "train": 8, "held_out": 2},
        student={"start": "own"},
        choice={"checkpoint": "recall", "positions": "all"},
        train={"steps": 2, "batch": 4, "states": "off_policy"},
    )
    cost = estimate(sizes, native, config)
    token = 2 * sizes.active + 2 * sizes.attention * 2048 * 6  # topk is half the length here
    scan = 2 * 64 * 128 * 2048
    original = 10 * 6 * 4096 * (token + 6 * scan) / 6  # 8 + 2 sequences, 6 layers
    arm = 2 * 4 * 4096 * (token + 3 * scan) / 6  # held-out text, to layer 4
    scores = 8 * 64 * 2 * scan * (3 + 2)  # two students with two consumers each
    assert cost.compared_flop == 0
    assert cost.streamed_flop == pytest.approx(original + arm + scores)


def test_the_warm_up_and_our_defaults_stand_beside_the_recipe(v32):
    sizes, native = v32
    config = recipe(train={"steps": 10, "batch": 2})
    lines = list(report_lines(estimate(sizes, native, config), sizes, ONE))
    table = lines[lines.index("tokens of the gradient stage, whole model:") + 1 :]
    tokens = [int(line.split()[0].replace(",", "")) for line in table]
    assert tokens == [10 * 2 * 4096, 120 * 4 * 512, 2_097_152_000]
    assert "2512.02556" in table[-1]
