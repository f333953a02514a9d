"""One forward pass over the library's own modules, with hooks that training needs.

Equal to `DeepseekV32ForCausalLM` (a test says so), but with a choice of where each layer's
selection comes from, differentiable index scores on sampled rows, and a dense mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.models.deepseek_v32.modeling_deepseek_v32 import (
    apply_rotary_pos_emb_interleave,
)

from evalkit.dsa import ReuseSchedule

Model = Any
"""A `DeepseekV32ForCausalLM`; the library's modules carry no usable types."""


@dataclass(slots=True)
class Layer:
    """What one layer saw and did; handed to the tap."""

    number: int
    attention: Any
    hidden: Tensor
    """[batch, time, hidden]: input of the attention block after its norm."""
    latent: Tensor
    """[batch, time, q_rank]: normed query latent."""
    cos: Tensor
    sin: Tensor
    query: Tensor
    """[batch, heads, time, dim]"""
    key: Tensor
    scores: Tensor | None
    """[batch, time, time]: own index scores, where the layer computed them."""
    selection: Tensor | None
    """[batch, time, time]: the mask that the layer's attention used."""

    @property
    def chosen(self) -> Tensor:
        """The selection; an error in a dense forward."""
        if self.selection is None:
            raise ValueError("a dense forward selects nothing")
        return self.selection


Tap = Callable[[Layer], None]


def index_scores(layer: Layer, rows: Tensor | None = None) -> Tensor:
    """Index scores [batch, rows, time] of a layer's own indexer, differentiable."""
    indexer = layer.attention.indexer
    hidden, latent, cos, sin = layer.hidden, layer.latent, layer.cos, layer.sin
    key = _rotate(indexer, indexer.k_norm(indexer.wk(hidden)).unsqueeze(2), cos, sin).squeeze(2)
    if rows is not None:
        latent = latent.gather(1, rows[..., None].expand(-1, -1, latent.shape[-1]))
        hidden = hidden.gather(1, rows[..., None].expand(-1, -1, hidden.shape[-1]))
        cos, sin = cos[0][rows], sin[0][rows]
    batch, count = latent.shape[:2]
    heads, dim = indexer.n_heads, indexer.head_dim
    query = _rotate(indexer, indexer.wq_b(latent).view(batch, count, heads, dim), cos, sin)
    weights = indexer.weights_proj(hidden) * heads**-0.5 * indexer.softmax_scale
    key = key.transpose(1, 2)
    if torch.is_grad_enabled():
        score = torch.matmul(query.reshape(batch, count * heads, dim), key)
        return (F.relu(score.view(batch, count, heads, -1)) * weights.unsqueeze(-1)).sum(2)
    total = torch.zeros(batch, count, key.shape[-1])
    for head in range(heads):
        total.addcmul_(torch.bmm(query[:, :, head], key).relu_(), weights[:, :, head, None])
    return total


def _rotate(indexer: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-split rotary embedding of the first dimensions; x is [batch, time, heads, dim]."""
    width = indexer.qk_rope_head_dim
    turned, rest = x[..., :width], x[..., width:]
    half = width // 2
    swapped = torch.cat([-turned[..., half:], turned[..., :half]], -1)
    return torch.cat([turned * cos.unsqueeze(2) + swapped * sin.unsqueeze(2), rest], -1)


def select(scores: Tensor, visible: Tensor, topk: int) -> Tensor:
    """Mask [..., time] of the top-k visible positions of every row."""
    scores = scores.masked_fill(~visible, float("-inf"))
    chosen = scores.topk(min(topk, scores.shape[-1]), -1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, chosen, True) & visible


def causal(time: int) -> Tensor:
    """[time, time] mask of what each row may see."""
    return torch.ones(time, time, dtype=torch.bool).tril()


def _project(attention: Any, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    """Query latent, query, key and value of latent attention."""
    batch, time, _ = hidden.shape
    heads, nope, rope = attention.num_heads, attention.qk_nope_head_dim, attention.qk_rope_head_dim
    latent = attention.q_a_layernorm(attention.q_a_proj(hidden))
    query = attention.q_b_proj(latent).view(batch, time, heads, -1).transpose(1, 2)
    query_flat, query_turned = query.split([nope, rope], -1)
    down = attention.kv_a_proj_with_mqa(hidden)
    down, key_turned = down.split([attention.kv_lora_rank, rope], -1)
    query_turned, key_turned = apply_rotary_pos_emb_interleave(
        query_turned, key_turned.unsqueeze(1), cos, sin
    )
    up = attention.kv_b_proj(attention.kv_a_layernorm(down))
    up = up.view(batch, time, heads, -1).transpose(1, 2)
    key_flat, value = up.split([nope, attention.v_head_dim], -1)
    key = torch.cat([key_flat, key_turned.expand(-1, heads, -1, -1)], -1)
    return latent, torch.cat([query_flat, query_turned], -1), key, value


def forward(
    model: Model,
    ids: Tensor,
    *,
    sources: Sequence[int] | None = None,
    schedule: ReuseSchedule | None = None,
    prompt: Tensor | None = None,
    masks: Sequence[Tensor] | None = None,
    topk: int | None = None,
    dense: bool = False,
    tap: Tap | None = None,
) -> Tensor:
    """Final hidden states [batch, time, hidden].

    Layer i attends to the selection of layer `sources[i]` (its own by default), or to what a
    schedule says: then rows from `prompt` [batch] on are decode rows.  `masks` replaces
    the selections of all layers.  `dense` ignores selections.
    """
    body = model.model
    time, layers = ids.shape[1], len(body.layers)
    topk = topk or model.config.index_topk
    prefill = list(range(layers)) if sources is None else list(sources)
    decode = prefill
    if schedule is not None:
        prefill, decode = list(schedule.sources("prefill")), list(schedule.sources("decode"))
    needed = set(prefill) | set(decode)
    visible, state = causal(time), body.embed_tokens(ids)
    cos, sin = body.rotary_emb(state, torch.arange(time).unsqueeze(0))
    decoding = (
        None if prompt is None else torch.arange(time)[None, :, None] >= prompt[:, None, None]
    )
    selections: dict[int, Tensor] = {}
    for number, block in enumerate(body.layers):
        attention, hidden = block.self_attn, block.input_layernorm(state)
        latent, query, key, value = _project(attention, hidden, cos, sin)
        seen = Layer(number, attention, hidden, latent, cos, sin, query, key, None, None)
        if masks is not None:
            seen.selection = masks[number]
        elif not dense:
            if number in needed:
                with torch.no_grad():
                    seen.scores = index_scores(seen)
                    selections[number] = select(seen.scores, visible, topk)
            seen.selection = selections[prefill[number]]
            if decoding is not None and decode[number] != prefill[number]:
                late = selections[decode[number]]
                seen.selection = torch.where(decoding, late, seen.selection)
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if seen.selection is None else seen.selection.unsqueeze(1),
            is_causal=dense,
            scale=attention.scaling,
        )
        if tap is not None:
            tap(seen)
        state = state + attention.o_proj(mixed.transpose(1, 2).flatten(2))
        state = state + block.mlp(block.post_attention_layernorm(state))
    return body.norm(state)
