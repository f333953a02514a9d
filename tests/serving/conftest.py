"""A checkpoint on paper: configuration and tokenizer, no weights; servers need no more here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

TOKENIZER = Path(__file__).parents[2] / "recipes" / "tiny" / "model"


def paper(directory: Path, **config) -> Path:
    """Directory with a config.json and the shipped tokenizer."""
    directory.mkdir(parents=True, exist_ok=True)
    base = {"model_type": "deepseek_v32", "num_hidden_layers": 8, "index_topk": 8}
    (directory / "config.json").write_text(json.dumps(base | config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, directory / name)
    return directory


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return paper(tmp_path_factory.mktemp("paper") / "model")
