"""What is asked of a live causal language model of transformers."""

from __future__ import annotations

from typing import Protocol, cast

from torch import Tensor, nn

from evalkit.dsa.transformers_model import TextConfig, TransformersModel


class DecoderConfig(TextConfig, Protocol):
    """The sizes in a language model's configuration."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_experts_per_tok: int
    head_dim: int
    index_n_heads: int
    index_head_dim: int


class Head(nn.Module):
    """The layer that makes logits of final hidden states, for type checkers."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocabulary]."""
        raise NotImplementedError


class CausalLM(TransformersModel):
    """The attributes of a causal language model, for type checkers: no model inherits from it."""

    def get_output_embeddings(self) -> Head:
        """The head."""
        raise NotImplementedError


def decoder_config_of(model: CausalLM) -> DecoderConfig:
    """The configuration of the language model's part."""
    return cast(DecoderConfig, model.config.get_text_config())
