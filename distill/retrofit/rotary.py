"""Rotary tables of a dense model, and the same tables as `longrope` parameters of an MLA model.

The dense model turns dims i and i + d/2 of every key-value head by the angle p·f_i at position p.
The target has one rotary key for all heads, which here holds the G key-value heads side by side: it
needs every f_i G times. `longrope` computes f_j = 1 / (factor_j · theta^(2j/w)) from one factor per
pair j; with theta = 1 the factors are the reciprocal frequencies and any table can be written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.errors import DistillError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

ROPE_TYPES = ("default", "linear", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """Rotary frequencies of one key-value head.

    Attributes:
        short: inverse frequencies [d/2] in radians per token, up to `original_length` tokens.
        long: the same for longer sequences; differs from `short` for `longrope` only.
        attention_factor: of cosines and sines (yarn, longrope); 1 elsewhere.
        original_length: tokens up to which `short` holds.
    """

    short: Tensor
    long: Tensor
    attention_factor: float
    original_length: int


def rotary_table(config: PreTrainedConfig) -> RotaryTable:
    """The table of a Llama, Mistral or Qwen2 configuration, as the installed library computes it.

    Raises:
        DistillError: the frequencies depend on the length of the sequence (dynamic NTK), or a part
            of the head is not rotated.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = config.rope_parameters
    kind = rope["rope_type"]
    if kind not in ROPE_TYPES:
        raise DistillError(
            f"rope type {kind}: its frequencies cannot be written as a table"
            f" (exact: {', '.join(ROPE_TYPES)})"
        )
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise DistillError("partial rotary positions: every dim of a key must be rotated")
    embedding = LlamaRotaryEmbedding(config)
    short = embedding.inv_freq.double()
    long, original = short, config.max_position_embeddings
    if kind == "longrope":
        original = rope["original_max_position_embeddings"]
        inverse, _ = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=original + 1)
        long = inverse.double()
    return RotaryTable(short, long, float(embedding.attention_scaling), int(original))


def longrope_parameters(table: RotaryTable, groups: int) -> dict[str, str | float | list[float]]:
    """`rope_parameters` of an MLA model whose rotary key holds `groups` key-value heads.

    Pairs are ordered by head, then by frequency. fp32 rounds the factor and its reciprocal: the
    frequencies differ from the dense model's by at most two units in the last place.
    """
    return {
        "rope_type": "longrope",
        "rope_theta": 1.0,
        "factor": 1.0,
        "attention_factor": table.attention_factor,
        "original_max_position_embeddings": table.original_length,
        "short_factor": (1.0 / table.short).repeat(groups).tolist(),
        "long_factor": (1.0 / table.long).repeat(groups).tolist(),
    }


def pair_order(groups: int, head_dim: int, *, interleaved: bool) -> Tensor:
    """Which dim of the side-by-side heads stands at each dim of the target's rotary slice [G·d].

    Both dims of pair (head g, frequency i) are g·d + i and g·d + i + d/2. Interleaved rotation
    (attention of both families, indexer of glm_moe_dsa) wants them at 2j and 2j + 1, half-split
    rotation (indexer of deepseek_v32) at j and j + G·d/2.
    """
    dims = torch.arange(groups * head_dim).view(groups, 2, head_dim // 2)
    order = dims.permute(0, 2, 1) if interleaved else dims.permute(1, 0, 2)
    return order.reshape(-1)
