"""A transformers model that is in memory already, as an engine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import Protocol

import torch

from evalkit.core.files import writing
from evalkit.dsa.transformers_model import ModelConfig
from evalkit.engines.hf.config import HfConfig
from evalkit.engines.hf.engine import HfEngine
from evalkit.engines.hf.greedy_decoder import CausalModel
from evalkit.prompts.tokenizers import ChatTokenizer


class _Config(ModelConfig, Protocol):
    """A transformers configuration that knows where it is from."""

    name_or_path: str

    def save_pretrained(self, save_directory: Path) -> None:
        """Write config.json."""
        ...


class LoadedModel(Protocol):
    """The part of a transformers model that is used before it answers."""

    config: _Config


class LoadedModelEngine(HfEngine):
    """Answers with a model that somebody else has loaded, and leaves it as it was.

    Its configuration and tokenizer are written into a directory, which stands for the checkpoint in
    the run; its weights are known by their checksum alone.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        directory: for both files; written when it is made.

    Raises:
        EvalkitError: the directory cannot be written to.
    """

    def __init__(self, model: LoadedModel, tokenizer: ChatTokenizer, directory: Path) -> None:
        super().__init__(HfConfig(indexer="chunked"))
        self.live: CausalModel = model  # type: ignore[assignment]
        self.directory = directory.resolve()
        self._training = False
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            model.config.save_pretrained(self.directory)
            tokenizer.save_pretrained(self.directory)  # type: ignore[attr-defined]

    def __enter__(self) -> LoadedModelEngine:
        self._training = self.live.training
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.live.train(self._training)

    def _load_model(self, model: str) -> CausalModel:
        del model  # the directory holds no weights
        return self.live.eval()

    def _weights_hash(self, model: str) -> str | None:
        """sha256 over names, types and bytes of all parameters and buffers in memory."""
        del model
        digest = hashlib.sha256()
        for name, tensor in sorted(self.live.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
            whole = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(whole.view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()
