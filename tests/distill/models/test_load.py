"""Which checkpoints a recipe can name."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from distill.errors import DistillError, EvalkitError
from distill.models.load import load_model, resolve_checkpoint


def test_directories_and_hub_ids_are_taken_and_a_gguf_file_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model.gguf").touch()
    assert resolve_checkpoint("model", tmp_path) == str(tmp_path / "model")
    assert resolve_checkpoint("owner/name", tmp_path) == "owner/name"
    with pytest.raises(EvalkitError, match=r"model ./gone: no such directory"):
        resolve_checkpoint("./gone", tmp_path)
    with pytest.raises(DistillError, match=r"model.gguf: a GGUF file has no indexers that can be"):
        resolve_checkpoint("model.gguf", tmp_path)


def test_indexers_that_stay_in_fp8_are_refused(checkpoint, monkeypatch):
    """As transformers leaves them on GPUs with FP8: their values are nothing without scales."""
    real = AutoModelForCausalLM.from_pretrained

    def in_fp8(*args, **kwargs):
        model = real(*args, **kwargs)
        projection = model.model.layers[3].self_attn.indexer.wk
        values = projection.weight.detach().to(torch.float8_e4m3fn)
        projection.weight = nn.Parameter(values, requires_grad=False)
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", in_fp8)
    with pytest.raises(DistillError, match=r"indexers in FP8 .*distill layerwise"):
        load_model(str(checkpoint), "float32")
