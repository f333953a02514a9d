"""Which checkpoints a recipe can name."""

from __future__ import annotations

import pytest

from distill.errors import DistillError, EvalkitError
from distill.models.load import resolve_checkpoint


def test_directories_and_hub_ids_are_taken_and_a_gguf_file_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model.gguf").touch()
    assert resolve_checkpoint("model", tmp_path) == str(tmp_path / "model")
    assert resolve_checkpoint("owner/name", tmp_path) == "owner/name"
    with pytest.raises(EvalkitError, match=r"model ./gone: no such directory"):
        resolve_checkpoint("./gone", tmp_path)
    with pytest.raises(DistillError, match=r"model.gguf: a GGUF file has no indexers that can be"):
        resolve_checkpoint("model.gguf", tmp_path)
