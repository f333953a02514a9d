"""Layouts of models from their config.json: families, native sharing, values of the wrong type."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from evalkit.cli.main import app
from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import dense_tokens, model_config, model_layout
from evalkit.dsa import ScheduleError, layout
from evalkit.dsa.engine_config.export import export
from evalkit.dsa.engine_config.published_patterns import published_pattern
from evalkit.dsa.engine_config.released_models import known_config

# Six layers: two of sliding windows, four compressed ones; indexers in layers 2 and 4.
V41 = {
    "model_type": "deepseek_v41",
    "num_hidden_layers": 6,
    "compress_ratios": [0, 0, 2, 1, 2, 1, 0],
    "kv_source_layer_ids": [2],
    "index_source_layer_ids": [2, 4],
}


def test_deepseek_v41_is_read_with_its_own_sources():
    places = layout(V41)
    assert places.layer_ids == (2, 3, 4, 5)
    assert places.native.pattern == "FSFS"
    assert layout({"model_type": "deepseek_v41", "text_config": V41}).native == places.native
    for engine in ("vllm-v41", "sglang-v41"):
        assert export(places.native, engine=engine, native=places.native).overrides == {}
        sparser = type(places.native).from_pattern("FSSS", layers=places.layer_ids)
        with pytest.raises(ScheduleError, match=r"DeepSeek-V4.1.: index_source_layer_ids of the"):
            export(sparser, engine=engine, native=places.native)


def test_longcat_counts_both_attention_modules_of_a_layer():
    places = layout(
        {"model_type": "longcat_flash", "num_layers": 3, "index_topk": 8, "cli_factor": 2}
    )
    assert (places.num_layers, places.native.pattern) == (3, "FSFSFS")
    with pytest.raises(ScheduleError, match="no layer of this configuration has an indexer"):
        layout({"model_type": "longcat_flash", "num_layers": 3})


def test_hy_v4_and_glm_share_as_their_classes_fill():
    assert layout({"model_type": "hy_v4", "num_hidden_layers": 6}).native.pattern == "FFSSSF"
    glm = {"model_type": "glm_moe_dsa", "num_hidden_layers": 78, "index_topk_freq": 4}
    places = layout(glm | {"index_skip_topk_offset": 3})
    assert places.native == published_pattern("glm-5.2-native").schedule
    short = {"model_type": "glm_moe_dsa", "num_hidden_layers": 4, "index_topk_pattern": "FSFS"}
    assert layout(short).native.pattern == "FSFS"


@pytest.mark.parametrize("name", ["minimax_m3_vl_text"])
def test_minimax_m3_is_refused_by_name(name):
    with pytest.raises(ScheduleError, match="MiniMax-M3 shares selections of key blocks"):
        layout({"model_type": name, "num_hidden_layers": 4})


def test_deepseek_v4_pro_is_known_offline():
    places = layout(known_config("deepseek-ai/DeepSeek-V4-Pro"))
    assert places.layer_ids == tuple(range(2, 61, 2))
    assert len(places.layer_ids) == 30
    assert dense_tokens("deepseek-ai/DeepSeek-V4-Pro") == 4096


GLM = {"model_type": "glm_moe_dsa", "num_hidden_layers": 4}
WRONG = [
    (GLM | {"indexer_types": True}, "indexer_types = True in the configuration: it must be a list"),
    (GLM | {"indexer_types": ["full", 1] * 2}, "indexer_types has 1: only full and shared"),
    (GLM | {"indexer_types": ["full"]}, "indexer_types has 1 entries for 4 layers"),
    (GLM | {"index_topk_freq": "4"}, "index_topk_freq '4' is not a whole number"),
    (GLM | {"index_topk_freq": None}, "index_topk_freq: null, which GlmMoeDsaConfig cannot"),
    (GLM | {"index_skip_topk_offset": None}, "index_skip_topk_offset: null, which GlmMoeDsaConfig"),
    (GLM | {"num_hidden_layers": "4"}, "num_hidden_layers = '4' in the configuration"),
    (V41 | {"index_source_layer_ids": 4}, "index_source_layer_ids = 4 in the configuration"),
    (V41 | {"compress_ratios": None}, "compress_ratios in the configuration must be a list of"),
]


@pytest.mark.parametrize(("config", "words"), WRONG, ids=[words for _, words in WRONG])
def test_values_of_the_wrong_type_are_one_line(config, words, tmp_path):
    with pytest.raises(ScheduleError, match=words.replace("[", ".")):
        layout(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = CliRunner().invoke(app, ["schedule", str(tmp_path)])
    assert isinstance(result.exception, (EvalkitError, ScheduleError))  # `evalkit` prints a line
    assert words in str(result.exception)


@pytest.mark.parametrize("name", ["index_topk_freq", "index_skip_topk_offset"])
def test_nulls_that_transformers_computes_with_are_named_before_it_fails(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(GLM | {name: None}))
    for read in (model_config, model_layout):
        with pytest.raises(EvalkitError, match=f"config.json has {name}: null.*remove the line"):
            read(str(tmp_path))
