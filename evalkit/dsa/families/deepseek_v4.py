"""The indexer of DeepSeek-V4: keys of compressed windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall, rotated, rows_of
from evalkit.dsa.features import IndexFeatures, rotate_pairs


def _rotated(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    return rotated(x, rope, 2 * rope[0].shape[-1], "last", rotate_pairs)


def _compress(indexer: Any, call: IndexerCall) -> Tensor:
    """Compressed index keys [B, T, d] of the sequence so far; updates the cache when there is one.

    Window w pools its own Cb series with the Ca series of window w-1 (DeepSeek-V4 report §2.3.1).
    """
    cache = call.cache.layers[call.layer_id] if call.cache is not None else None
    ratio, dim = indexer.compress_rate, indexer.head_dim
    kv, gate = indexer.kv_proj(call.hidden), indexer.gate_proj(call.hidden)
    if cache is None:
        usable = kv.shape[1] // ratio * ratio
        kv, gate, start = kv[:, :usable], gate[:, :usable], 0
    else:
        kv, gate, start = cache.store_compression_weights("indexer", kv, gate)
    batch, windows = kv.shape[0], kv.shape[1] // ratio
    if windows == 0:
        keys = kv.new_zeros((batch, 0, dim))
        return _remembered(cache, keys)
    kv = kv.view(batch, windows, ratio, 2 * dim)
    gate = gate.view(batch, windows, ratio, 2 * dim) + indexer.position_bias
    first_kv = kv.new_zeros((batch, 1, ratio, dim))
    first_gate = gate.new_full((batch, 1, ratio, dim), float("-inf"))
    if cache is not None:
        prior_kv, prior_gate = cache.update_overlap_state("indexer", kv, gate, dim)
        if prior_kv is not None:
            first_kv, first_gate = prior_kv.unsqueeze(1), prior_gate.unsqueeze(1)
    before_kv = torch.cat([first_kv.to(kv.dtype), kv[:, :-1, :, :dim]], dim=1)
    before_gate = torch.cat([first_gate.to(gate.dtype), gate[:, :-1, :, :dim]], dim=1)
    slots = torch.cat([before_kv, kv[..., dim:]], dim=2)
    share = torch.cat([before_gate, gate[..., dim:]], dim=2)
    share = share.softmax(dim=2, dtype=torch.float32).to(slots.dtype)
    pooled = indexer.kv_norm((slots * share).sum(dim=2))
    at = (torch.arange(windows, device=pooled.device) * ratio + start).unsqueeze(0)
    rope = indexer.rotary_emb(
        pooled, position_ids=at.expand(batch, -1), layer_type=indexer.rope_layer_type
    )
    keys = _rotated(pooled.unsqueeze(2), rope).squeeze(2)
    return _remembered(cache, keys)


def _remembered(cache: Any, keys: Tensor) -> Tensor:
    """All keys so far: the cache appends the fresh ones and returns the whole list."""
    if cache is None:
        return keys
    everything: Tensor = cache.update_compressor_states("indexer", keys)
    return everything


def features(indexer: Any, call: IndexerCall, rows: Tensor | None = None) -> IndexFeatures:
    """Features of the DeepSeek-V4 indexer: scale after the ReLU, compressed keys."""
    at = rows_of(call, rows)
    if at.q_resid is None or at.position_ids is None:
        raise ValueError("deepseek_v4 needs the query latent and position ids")
    x, positions = at.hidden, at.position_ids
    rope = indexer.rotary_emb(x, position_ids=positions, layer_type=indexer.rope_layer_type)
    query = indexer.q_b_proj(at.q_resid).unflatten(-1, (-1, indexer.head_dim))
    scorer = indexer.scorer
    return IndexFeatures(
        query=_rotated(query, rope).float(),
        key=_compress(indexer, call).float(),
        weight=scorer.weights_proj(x).float() * scorer.weights_scaling,
        scale=scorer.softmax_scale,
        positions=positions if rows is not None and rows.dim() == 2 else positions[0],
        ratio=indexer.compress_rate,
    )


def advance(indexer: nn.Module, call: IndexerCall) -> None:
    """A shared C4 layer keeps its indexer's compressor state in step, and nothing else."""
    if call.cache is not None:
        _compress(indexer, call)
