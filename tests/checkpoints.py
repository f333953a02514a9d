"""Small checkpoints on disk for tests of the whole path: random weights, the shipped tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.dsa.tiny import build
from tests.paths import TINY_MODEL

VOCABULARY = 640
END = 2  # id of the end-of-text token


def save(directory: Path, family: str = "deepseek_v32", **overrides: object) -> Path:
    """A seeded random model with the shipped tokenizer beside it."""
    options: dict[str, object] = {"vocab_size": VOCABULARY, "max_position_embeddings": 1024}
    model = build(family, **(options | overrides))
    model.save_pretrained(directory)
    return _with_tokenizer(directory)


def paper(directory: Path, **config: object) -> Path:
    """A checkpoint on paper: configuration and tokenizer, no weights; servers need no more here."""
    directory.mkdir(parents=True, exist_ok=True)
    base = {"model_type": "deepseek_v32", "num_hidden_layers": 8, "index_topk": 8}
    (directory / "config.json").write_text(json.dumps(base | config))
    return _with_tokenizer(directory)


def _with_tokenizer(directory: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY_MODEL / name, directory / name)
    return directory
