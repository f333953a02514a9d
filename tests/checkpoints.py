"""Small checkpoints on disk for tests of the whole path: random weights, the shipped tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.dsa.tiny import build

TOKENIZER = Path(__file__).parent.parent / "recipes" / "tiny" / "model"
VOCABULARY = 640
END = 2  # id of the end-of-text token


def save(directory: Path, family: str = "deepseek_v32", **overrides: object) -> Path:
    """A seeded random model with the shipped tokenizer beside it."""
    options: dict[str, object] = {"vocab_size": VOCABULARY, "max_position_embeddings": 1024}
    model = build(family, **(options | overrides))
    model.save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, directory / name)
    return directory
