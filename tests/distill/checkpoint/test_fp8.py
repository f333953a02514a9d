"""FP8 blocks: a hand value, edges, rounding, powers of two, reading layer by layer."""

from __future__ import annotations

import pytest
import torch

from distill.checkpoint.fp8 import dequantise, quantise
from distill.checkpoint.sharded import Checkpoint
from distill.errors import DistillError
from tests.distill.bases import BLOCK, in_fp8, sharded


def test_a_hand_value():
    weight = torch.tensor([[1.0, -2.0, 0.5], [4.0, 448.0, -0.25]]).to(torch.float8_e4m3fn)
    scale = torch.tensor([[0.5, 10.0]])
    wide = dequantise(weight, scale, (2, 2))
    assert wide.tolist() == [[0.5, -1.0, 5.0], [2.0, 224.0, -2.5]]


def test_quantised_by_hand():
    weight = torch.tensor([[448.0, 0.0, 0.0], [-224.0, 0.0, 7.0]])
    values, scale = quantise(weight, (2, 2))
    assert scale.tolist() == [[1.0, 7.0 / 448.0]]
    assert values.float().tolist() == [[448.0, 0.0, 0.0], [-224.0, 0.0, 448.0]]
    assert dequantise(values, scale, (2, 2)).tolist() == weight.tolist()


@pytest.mark.parametrize("shape", [(128, 128), (130, 260), (7, 5), (256, 1)])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_rounding_stays_within_a_step(shape, power_of_two):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3
    values, scale = quantise(weight, power_of_two=power_of_two)
    assert scale.shape == (-(-shape[0] // 128), -(-shape[1] // 128))
    if power_of_two:
        assert torch.equal(scale.log2(), scale.log2().round())
    error = (dequantise(values, scale) - weight).abs()
    # e4m3 has 3 mantissa bits: half a step is 2^-4 of the value, or of the smallest normal one
    smallest = 2.0**-9 * float(scale.max())
    assert bool((error <= weight.abs() * 2.0**-4 + smallest).all())
    again, same = quantise(dequantise(values, scale), power_of_two=power_of_two)
    if power_of_two or float(values.float().abs().max()) == 448.0:
        assert torch.equal(dequantise(again, same), dequantise(values, scale))


def test_e8m0_scales_are_powers_of_two():
    weight = torch.randn(40, 40, generator=torch.Generator().manual_seed(1))
    values, scale = quantise(weight, (16, 16), torch.float8_e8m0fnu)
    assert scale.dtype == torch.float8_e8m0fnu
    assert torch.allclose(dequantise(values, scale, (16, 16)), weight, rtol=2**-4, atol=1e-3)


def test_scales_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        dequantise(torch.zeros(4, 4).to(torch.float8_e4m3fn), torch.ones(3, 1), (2, 2))


@pytest.mark.parametrize("power_of_two", [False, True])
def test_a_quantised_checkpoint_is_read_tensor_by_tensor(tmp_path, power_of_two):
    directory, model = sharded(tmp_path)
    in_fp8(directory, power_of_two=power_of_two)
    checkpoint = Checkpoint(str(directory))
    assert checkpoint.block == BLOCK
    assert checkpoint.scales_are_powers == power_of_two
    name = "model.layers.3.self_attn.indexer.wq_b.weight"
    stored = checkpoint.read(name)
    assert stored.dtype == torch.float8_e4m3fn
    wide = checkpoint.plain(name, torch.float32)
    scale = checkpoint.read(f"{name}_scale_inv")
    assert wide[17, 3] == stored[17, 3].float() * scale[1, 0]
    own = model.get_parameter(name).detach()
    assert torch.allclose(wide, own, rtol=2**-4, atol=float(own.abs().max()) * 2**-9)
    assert checkpoint.plain(name).dtype == torch.bfloat16
    norm = "model.layers.3.self_attn.indexer.k_norm.weight"
    assert torch.equal(checkpoint.plain(norm), model.get_parameter(norm))
    assert checkpoint.is_scale(f"{name}_scale_inv")
    assert not checkpoint.is_scale(name)


def test_fp8_without_scales_is_refused(tmp_path):
    directory, _ = sharded(tmp_path)
    in_fp8(directory)
    checkpoint = Checkpoint(str(directory))
    name = "model.layers.3.self_attn.indexer.wq_b.weight"
    del checkpoint.entries[f"{name}_scale_inv"]
    with pytest.raises(DistillError, match="no block scales"):
        checkpoint.plain(name)
