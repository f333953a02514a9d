"""Layout: indexer-bearing layers, native schedule and selection size from configurations alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evalkit.dsa import ScheduleError, UnsupportedModelError, layout
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.families.registry import FAMILIES
from evalkit.dsa.families.sites import ADAPTERS

V4 = {"model_type": "deepseek_v4", "num_hidden_layers": 6, "index_topk": 512}
CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"


def test_all_layers_or_those_of_one_type():
    assert layout({"model_type": "deepseek_v32", "num_hidden_layers": 3}).layer_ids == (0, 1, 2)
    types = ["linear_attention", "indexed_attention"] * 2
    text = {"model_type": "glm5_next_text", "num_hidden_layers": 4, "layer_types": types}
    assert layout({"model_type": "glm5_next", "text_config": text}).layer_ids == (1, 3)


def test_v4_counts_compressed_sparse_layers_and_no_mtp_layers():
    ratios = [0, 4, 128, 4, 128, 4, 4]  # the last entry is an MTP layer
    by_ratio = layout(V4 | {"compress_ratios": ratios})
    by_type = layout(V4 | {"layer_types": [HCA, CSA] * 3 + [CSA]})
    assert by_ratio.layer_ids == by_type.layer_ids == (1, 3, 5)
    assert by_ratio == by_type


def test_up_to_dense_tokens_everything_is_selected():
    assert layout(V4 | {"layer_types": [CSA] * 6}).dense_tokens == 2048
    rates = {CSA: 8, HCA: 128}
    assert layout(V4 | {"layer_types": [CSA] * 6, "compress_rates": rates}).dense_tokens == 4096
    tokens = {"model_type": "axk2", "num_hidden_layers": 2}
    assert layout(tokens | {"index_topk": 64}).dense_tokens == 64
    assert layout(tokens).dense_tokens is None


def test_shared_layers_of_a_checkpoint():
    types = ["full", "shared", "shared", "full", "shared"]  # longer: MTP layers follow
    config = {"model_type": "hy_v4", "num_hidden_layers": 4, "indexer_types": types}
    assert layout(config).native.pattern == "FSSF"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "llama", "num_hidden_layers": 2}, "llama is not supported: it has no"),
        ({"model_type": "qwen4_exp_text", "num_hidden_layers": 2}, "returns a token mask"),
        ({"model_type": "deepseek_v4", "num_hidden_layers": 2}, "no layer of this configuration"),
        ({}, r"\? is not supported"),
    ],
)
def test_models_without_a_lightning_indexer(config, words):
    with pytest.raises(UnsupportedModelError, match=words):
        layout(config)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no num_hidden_layers"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers = '2' in the configuration: it must be a"),
        ({"num_hidden_layers": 2, "indexer_types": True}, "indexer_types = True .*must be a list"),
        ({"num_hidden_layers": 2, "indexer_types": ["full"]}, "1 entries for 2 layers"),
        ({"num_hidden_layers": 2, "indexer_types": ["shared", "full"]}, "first layer must be full"),
        ({"num_hidden_layers": 2, "index_topk": 2.5}, "index_topk = 2.5 .*whole number"),
    ],
)
def test_configurations_that_contradict_themselves(fields, words):
    with pytest.raises(ScheduleError, match=words) as caught:
        layout({"model_type": "glm_moe_dsa", **fields})
    assert not isinstance(caught.value, UnsupportedModelError)


def test_every_record_is_complete():
    for name, family in FAMILIES.items():
        if not family.parameters:  # nothing that transformers runs
            assert family.refused or family.layers, name
            assert not (family.adapter or family.dialect), name
            continue
        assert family.parameters[0] == "hidden_states", name
        assert family.adapter in ADAPTERS if family.adapter else family.no_features, name
        row = DIALECTS[family.dialect]
        assert row.launch == "transformers", name
        assert (row.space == "c4") == (family.ratio > 1), name
        assert bool(family.config_class) == (family.class_types is not None), name


def test_the_table_of_models_shows_the_records():
    """docs/schedules.md names every family, and its rotary form."""
    text = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|([^|]*)\|", text, flags=re.MULTILINE)
    table = {name: rope.strip() for names, rope in rows for name in re.findall(r"\w+", names)}
    assert set(FAMILIES) <= set(table)
    for name, family in FAMILIES.items():
        if family.rope is not None:
            form = family.rope.replace("half_split", "half-split").replace("_", " ")
            assert table[name].startswith(f"{form}, {family.rope_slice}"), name
        else:
            assert table[name] in ("", "none"), name
