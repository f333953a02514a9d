"""The indexer of DeepSeek-V3.2 and its descendants: keys of single tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall, rows_of
from evalkit.dsa.families.adapter import Adapter
from evalkit.dsa.families.base import Family
from evalkit.dsa.features import ROTATIONS, IndexFeatures, rotate_slice


class _MlaIndexer(Protocol):
    """Attributes of transformers' indexers; `q_input_norm` where there is no query latent."""

    n_heads: int
    head_dim: int
    qk_rope_head_dim: int
    softmax_scale: float
    wq_b: nn.Linear
    wk: nn.Linear
    k_norm: nn.LayerNorm
    weights_proj: nn.Linear
    q_input_norm: nn.Module
    softmax_scaling: Callable[..., Tensor]


def adapter(family: Family) -> Adapter:
    """Features with the family's rotary form.

    I[t,s] = Σ_h w[t,h] · ReLU(q[t,h]·k[s] · d^-1/2),  w = weights_proj(x) · H^-1/2
    (DeepSeek-V3.2 report, eq. 1; scale placement as in the installed library).
    """

    def features(module: nn.Module, call: IndexerCall, rows: Tensor | None = None) -> IndexFeatures:
        indexer = cast(_MlaIndexer, module)
        query_call = rows_of(call, rows)
        query, key = _query(indexer, query_call), _key(indexer, call.hidden)
        if family.rope is not None and getattr(module, "use_rope", True):
            if call.rope is None or query_call.rope is None:
                raise ValueError("this family needs position embeddings")
            rotate, width = ROTATIONS[family.rope], indexer.qk_rope_head_dim
            query = rotate_slice(query, query_call.rope, width, family.rope_slice, rotate)
            key = rotate_slice(key, call.rope, width, family.rope_slice, rotate)
        key = key.squeeze(2)
        positions = torch.arange(key.shape[1], device=key.device)
        if call.cache is not None:
            key = call.cache.update_indexer(key, call.layer_id)
            # Not by the number of keys: a static cache hands out its room, too. Attention has
            # stored these rows before its indexer runs.
            positions = positions + (call.cache.get_seq_length(call.layer_id) - len(positions))
        return IndexFeatures(
            query=query.float(),
            key=key.float(),
            weight=_head_weights(indexer, query_call.hidden),
            scale=indexer.softmax_scale,
            positions=positions if rows is None else positions[rows],
            key_valid=_valid_keys(call.mask),
        )

    return Adapter(features)


def _query(indexer: _MlaIndexer, call: IndexerCall) -> Tensor:
    """Unrotated queries [B, R, H, d]."""
    heads = (-1, indexer.head_dim)
    latent = indexer.q_input_norm(call.hidden) if call.q_resid is None else call.q_resid
    query: Tensor = indexer.wq_b(latent).unflatten(-1, heads)
    if call.q_resid is not None:
        return query
    return indexer.softmax_scaling(query, call.position_ids, head_dim_first=False)


def _key(indexer: _MlaIndexer, hidden: Tensor) -> Tensor:
    """Unrotated keys [B, S, 1, d], normalised in the precision of the norm."""
    norm = indexer.k_norm
    key: Tensor = norm(indexer.wk(hidden).to(norm.weight.dtype))
    return key.to(hidden.dtype).unsqueeze(2)


def _head_weights(indexer: _MlaIndexer, hidden: Tensor) -> Tensor:
    """w [B, R, H] in fp32."""
    projection = indexer.weights_proj
    weight: Tensor = projection(hidden.to(projection.weight.dtype))
    scale: float = indexer.n_heads**-0.5
    return weight.float() * scale


def _valid_keys(mask: Tensor | None) -> Tensor | None:
    """[B, T], False at padding: the last row of a causal mask sees every key that is one."""
    if mask is None:
        return None
    last = mask[:, -1]
    valid = last if last.dtype == torch.bool else last >= 0
    return None if bool(valid.all()) else valid
