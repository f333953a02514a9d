"""What is asked of a live transformers model: its configuration, its decoder, its cache."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import nn

from evalkit.dsa.families.base import UnsupportedModelError
from evalkit.dsa.json_types import JsonObject

if TYPE_CHECKING:
    from evalkit.dsa.call import IndexerCache


class TextConfig(Protocol):
    """The configuration of a language model."""

    model_type: str
    index_topk: int
    _attn_implementation: str

    def to_dict(self) -> JsonObject:
        """Its fields."""
        ...


class ModelConfig(Protocol):
    """A transformers configuration; of a multimodal model, the text part is inside."""

    model_type: str

    def get_text_config(self) -> TextConfig:
        """The language model's part."""
        ...

    def to_dict(self) -> JsonObject:
        """Its fields."""
        ...


class TransformersModel(nn.Module):
    """The attributes of a transformers model, for type checkers: no model inherits from it."""

    config: ModelConfig
    device: torch.device
    dtype: torch.dtype

    def get_decoder(self) -> nn.Module:
        """The stack of decoder layers with its embeddings and final norm."""
        raise NotImplementedError


def text_config_of(model: nn.Module) -> TextConfig:
    """The configuration of the language model.

    Raises:
        UnsupportedModelError: not a transformers model.
    """
    if not hasattr(model, "config"):
        raise UnsupportedModelError(f"{type(model).__name__} has no configuration")
    return cast(TransformersModel, model).config.get_text_config()


def new_cache(model: nn.Module) -> IndexerCache:
    """An empty cache for keys and values, and for index keys."""
    from transformers import DynamicCache

    return cast("IndexerCache", DynamicCache(config=text_config_of(model)))


def cache_argument(model: nn.Module) -> str:
    """Name of the cache in a forward: ``cache``, or ``past_key_values`` in older model classes."""
    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"
