"""Tokenizers: loaded without running code, and hashed by what they do."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.core.model_info import located
from evalkit.core.types import Tokenizer

if TYPE_CHECKING:
    import tokenizers


class ChatTokenizer(Tokenizer, Protocol):
    """The part of a Hugging Face tokenizer that prompts and engines use."""

    bos_token: str | None
    eos_token_id: int | list[int] | None
    pad_token_id: int | None
    all_special_ids: list[int]
    chat_template: str | None

    def __len__(self) -> int:
        """Size of the vocabulary, added tokens included."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """Token ids by token."""
        ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        **template_arguments: object,
    ) -> object:
        """The conversation as text."""
        ...


def backend_of(tokenizer: Tokenizer) -> tokenizers.Tokenizer | None:
    """The fast tokenizer inside; None for tokenizers written in Python."""
    backend: tokenizers.Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    return backend


def hash_ids(ids: Sequence[int]) -> str:
    """sha256 of token ids (little-endian 32-bit)."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()


def tokenizer_hash(tokenizer: ChatTokenizer) -> str:
    """sha256 of a tokenizer's whole definition, or of its vocabulary where it has no such form."""
    backend = backend_of(tokenizer)
    vocabulary = sorted(tokenizer.get_vocab().items()) if backend is None else ()
    text = repr(vocabulary) if backend is None else backend.to_str()
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def load_tokenizer(model: str | Path) -> ChatTokenizer:
    """The tokenizer of a model (directory, file or hub id), never running code from the checkpoint.

    Raises:
        EvalkitError: there is none, or it cannot be read.
    """
    from transformers import AutoTokenizer

    try:
        name, more = located(str(model))
        tokenizer: ChatTokenizer = AutoTokenizer.from_pretrained(name, **more)
    except Exception as error:  # whatever a damaged file makes transformers raise
        raise EvalkitError(f"{model}: no usable tokenizer: {in_one_line(error)}") from error
    # Long texts are tokenised to be cut, and the engine refuses prompts that do not fit.
    given_warnings = getattr(tokenizer, "deprecation_warnings", None)
    if isinstance(given_warnings, dict):
        given_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return tokenizer
