"""A converted model computes the logits of the dense one, in both families, loaded from disk.

fp32 tolerance: 1e-4 where logits spread over 1 to 3; the dense model itself is up to 1e-5 from its
own fp64 result there.
"""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from distill.retrofit.convert import FAMILIES, Indexers, convert
from distill.retrofit.dense import load_dense
from tests.distill.retrofit.dense_models import save_dense, token_ids

TOLERANCE = 1e-4
LENGTH = 48
ROPE = {
    "default": {"rope_theta": 500.0},
    "linear": {"rope_theta": 1e4, "factor": 4.0},
    "llama3": {
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32},
    "longrope": {
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "short_factor": [1.0, 1.1, 1.3, 1.7],
        "long_factor": [1.5, 2.0, 3.0, 4.0],
    },
}
VARIANTS = {
    "one query head for each key-value head": ("llama", {"num_key_value_heads": 4}),
    "one key-value head": ("llama", {"num_key_value_heads": 1}),
    "odd head counts": (
        "llama",
        {"hidden_size": 27, "num_attention_heads": 9, "num_key_value_heads": 3},
    ),
    "tied embeddings": ("llama", {"tie_word_embeddings": True}),
    "biases everywhere": ("llama", {"attention_bias": True}),
    "biases of Qwen2": ("qwen2", {}),
    "a width divisible by eight": ("mistral", {"sliding_window": None, "hidden_size": 32}),
    "a window as long as the model": ("mistral", {"sliding_window": 128}),
    "a large epsilon": ("llama", {"rms_norm_eps": 0.3}),
}


def converted(directory, family, indexers=None):
    """The dense directory's conversion, loaded again by transformers alone."""
    out = directory.with_name(f"{directory.name}-{family}")
    convert(load_dense(str(directory)), out, family, indexers or Indexers())
    return AutoModelForCausalLM.from_pretrained(out).eval()


@torch.no_grad()
def gap(dense, other, length=LENGTH):
    """Largest logit difference, after checking that the logits do not vanish."""
    ids = token_ids(length)
    expected = dense(ids).logits
    assert expected.std() > 0.5
    return float((expected - other(ids).logits).abs().max())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_the_dense_model(tmp_path, variant, family):
    model_type, config = VARIANTS[variant]
    dense = save_dense(tmp_path / "dense", model_type, **config)
    assert gap(dense, converted(tmp_path / "dense", family)) < TOLERANCE


@pytest.mark.parametrize("kind", ROPE)
def test_every_rope_type_that_is_a_table_is_exact(tmp_path, kind):
    rope = {"rope_type": kind} | ROPE[kind]
    dense = save_dense(tmp_path / "dense", rope_parameters=rope)
    other = converted(tmp_path / "dense", "deepseek_v32")
    assert gap(dense, other) < TOLERANCE
    assert gap(dense, other, length=24) < TOLERANCE  # longrope takes the short table there
    plain = save_dense(tmp_path / "plain")
    assert gap(plain, other) > 100 * TOLERANCE  # the table matters at this length


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    width=st.integers(1, 5),
    groups=st.integers(1, 4),
    share=st.integers(1, 3),
    half=st.integers(1, 5),
    biased=st.booleans(),
    tied=st.booleans(),
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 99),
)
def test_any_shape_is_exact(
    tmp_path_factory, width, groups, share, half, biased, tied, family, seed
):
    directory = tmp_path_factory.mktemp("shape") / "dense"
    dense = save_dense(
        directory,
        seed=seed,
        hidden_size=width * groups * share,  # a multiple of the heads, as Llama wants it
        num_attention_heads=groups * share,
        num_key_value_heads=groups,
        head_dim=2 * half,
        attention_bias=biased,
        tie_word_embeddings=tied,
    )
    other = converted(directory, family)
    ids = token_ids(LENGTH)
    with torch.no_grad():
        expected, logits = dense(ids).logits, other(ids).logits
    assert torch.allclose(expected, logits, rtol=1e-4, atol=TOLERANCE)


def test_decoding_with_a_cache_gives_the_dense_models_tokens(tmp_path):
    dense = save_dense(tmp_path / "dense", num_key_value_heads=4, attention_bias=True)
    other = converted(tmp_path / "dense", "deepseek_v32")
    ids = token_ids(20)
    options = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": None}
    assert torch.equal(dense.generate(ids, **options), other.generate(ids, **options))


def test_format_only_stays_dense_up_to_the_maximum_length(tmp_path):
    dense = save_dense(tmp_path / "dense")
    other = converted(tmp_path / "dense", "glm_moe_dsa", Indexers(copied=False))
    assert gap(dense, other, length=128) < TOLERANCE


def test_a_checkpoint_in_another_precision_is_converted_in_fp32(tmp_path):
    save_dense(tmp_path / "dense").bfloat16().save_pretrained(tmp_path / "dense")
    dense = AutoModelForCausalLM.from_pretrained(tmp_path / "dense", dtype=torch.float32).eval()
    assert gap(dense, converted(tmp_path / "dense", "deepseek_v32")) < TOLERANCE
