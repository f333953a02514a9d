"""The indexer of DeepSeek-V3.2 and its descendants: keys of single tokens."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from evalkit.dsa.call import IndexerCall, Rotation, rotated, rows_of
from evalkit.dsa.families.base import Features
from evalkit.dsa.features import (
    IndexFeatures,
)


def _mla_features(rotate: Rotation, rope_slice: Literal["first", "last"]) -> Features:
    """Features of the DeepSeek-V3.2 indexer and its descendants.

    I[t,s] = Σ_h w[t,h] · ReLU(q[t,h]·k[s] · d^-1/2),  w = weights_proj(x) · H^-1/2
    (DeepSeek-V3.2 report, eq. 1; scale placement as in the installed library).
    """

    def features(indexer: Any, call: IndexerCall, rows: Tensor | None = None) -> IndexFeatures:
        x, dim, seq = call.hidden, indexer.head_dim, call.hidden.shape[1]
        at = rows_of(call, rows)
        if at.q_resid is None:
            query = indexer.wq_b(indexer.q_input_norm(at.hidden)).unflatten(-1, (-1, dim))
            query = indexer.softmax_scaling(query, at.position_ids, head_dim_first=False)
        else:
            query = indexer.wq_b(at.q_resid).unflatten(-1, (-1, dim))
        norm = indexer.k_norm
        key = norm(indexer.wk(x).to(norm.weight.dtype)).to(x.dtype).unsqueeze(2)
        if getattr(indexer, "use_rope", True):
            if call.rope is None or at.rope is None:
                raise ValueError("this family needs position embeddings")
            width = indexer.qk_rope_head_dim
            query = rotated(query, at.rope, width, rope_slice, rotate)
            key = rotated(key, call.rope, width, rope_slice, rotate)
        projection = indexer.weights_proj
        weight = projection(at.hidden.to(projection.weight.dtype)).float() * indexer.n_heads**-0.5
        key = key.squeeze(2)
        if call.cache is not None:
            key = call.cache.update_indexer(key, call.layer_id)
        positions = torch.arange(key.shape[1] - seq, key.shape[1], device=x.device)
        return IndexFeatures(
            query=query.float(),
            key=key.float(),
            weight=weight,
            scale=indexer.softmax_scale,
            positions=positions if rows is None else positions[rows],
            key_valid=_valid_keys(call.mask),
        )

    return features


def _valid_keys(mask: Tensor | None) -> Tensor | None:
    """[B, T], False at padding: the last row of a causal mask sees every key that is one."""
    if mask is None:
        return None
    last = mask[:, -1]
    valid = last if last.dtype == torch.bool else last >= 0
    return None if bool(valid.all()) else valid
