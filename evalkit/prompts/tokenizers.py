"""Tokenizers: loaded without running code, and hashed by what they do."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.core.model_info import located


def hash_ids(ids: Sequence[int]) -> str:
    """sha256 of token ids (little-endian 32-bit)."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()


def tokenizer_hash(tokenizer: Any) -> str:
    """sha256 of a tokenizer's whole definition, or of its vocabulary where it has no such form."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        text = backend.to_str()
    else:
        text = repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def load_tokenizer(model: str | Path) -> Any:
    """The tokenizer of a model (directory, file or hub id), never running code from the checkpoint.

    Raises:
        EvalkitError: there is none, or it cannot be read.
    """
    from transformers import AutoTokenizer

    try:
        name, more = located(str(model))
        tokenizer = AutoTokenizer.from_pretrained(name, **more)
    except Exception as error:  # whatever a damaged file makes transformers raise
        raise EvalkitError(f"{model}: no usable tokenizer: {in_one_line(error)}") from error
    # Long texts are tokenised to be cut, and the engine refuses prompts that do not fit.
    known = getattr(tokenizer, "deprecation_warnings", None)
    if isinstance(known, dict):
        known["sequence-length-is-longer-than-the-specified-maximum"] = True
    return tokenizer
