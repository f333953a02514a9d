"""The indexer of DeepSeek-V4: keys of compressed windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from evalkit.dsa.call import CompressorCache, IndexerCall, rows_of
from evalkit.dsa.families.adapter import Adapter
from evalkit.dsa.families.base import Family
from evalkit.dsa.features import ROTATIONS, IndexFeatures, rotate_slice


class _Scorer(Protocol):
    weights_proj: nn.Linear
    weights_scaling: float
    softmax_scale: float


class _V4Indexer(Protocol):
    """Attributes of transformers' indexer."""

    compress_rate: int
    head_dim: int
    rope_layer_type: str
    q_b_proj: nn.Linear
    kv_proj: nn.Linear
    gate_proj: nn.Linear
    kv_norm: nn.Module
    position_bias: Tensor
    rotary_emb: Callable[..., tuple[Tensor, Tensor]]
    scorer: _Scorer


def adapter(family: Family) -> Adapter:
    """Features with compressed keys, and the compressor state that shared layers keep."""

    def rotated(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        if family.rope is None:
            return x
        width = 2 * rope[0].shape[-1]
        return rotate_slice(x, rope, width, family.rope_slice, ROTATIONS[family.rope])

    def keys(indexer: _V4Indexer, call: IndexerCall) -> Tensor:
        """Compressed index keys [B, T, d] of the sequence so far; updates the cache, if any."""
        cache = call.cache.layers[call.layer_id] if call.cache is not None else None
        pooled, start = _pooled(indexer, call.hidden, cache)
        if pooled.shape[1]:
            windows = torch.arange(pooled.shape[1], device=pooled.device)
            positions = (windows * indexer.compress_rate + start).expand(pooled.shape[0], -1)
            pooled = rotated(pooled.unsqueeze(2), _rope(indexer, pooled, positions)).squeeze(2)
        return pooled if cache is None else cache.update_compressor_states("indexer", pooled)

    def features(module: nn.Module, call: IndexerCall, rows: Tensor | None = None) -> IndexFeatures:
        indexer = cast(_V4Indexer, module)
        query_call = rows_of(call, rows)
        positions = query_call.position_ids
        if query_call.q_resid is None or positions is None:
            raise ValueError("deepseek_v4 needs the query latent and position ids")
        query: Tensor = indexer.q_b_proj(query_call.q_resid).unflatten(-1, (-1, indexer.head_dim))
        rope, scorer = _rope(indexer, query_call.hidden, positions), indexer.scorer
        return IndexFeatures(
            query=rotated(query, rope).float(),
            key=keys(indexer, call).float(),
            weight=scorer.weights_proj(query_call.hidden).float() * scorer.weights_scaling,
            scale=scorer.softmax_scale,
            positions=positions if rows is not None and rows.dim() == 2 else positions[0],
            ratio=indexer.compress_rate,
        )

    def advance(module: nn.Module, call: IndexerCall) -> None:
        if call.cache is not None:
            keys(cast(_V4Indexer, module), call)

    return Adapter(features, advance)


def _rope(indexer: _V4Indexer, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return indexer.rotary_emb(x, position_ids=positions, layer_type=indexer.rope_layer_type)


def _pooled(
    indexer: _V4Indexer, hidden: Tensor, cache: CompressorCache | None
) -> tuple[Tensor, int]:
    """Unrotated keys [B, windows, d] of the new whole windows, and the first one's position.

    Window w pools its own Cb series with the Ca series of window w-1 (DeepSeek-V4 report §2.3.1).
    """
    ratio, dim = indexer.compress_rate, indexer.head_dim
    kv: Tensor = indexer.kv_proj(hidden)
    gate: Tensor = indexer.gate_proj(hidden)
    if cache is None:
        usable = kv.shape[1] // ratio * ratio
        kv, gate, start = kv[:, :usable], gate[:, :usable], 0
    else:
        kv, gate, start = cache.store_compression_weights("indexer", kv, gate)
    batch, windows = kv.shape[0], kv.shape[1] // ratio
    if windows == 0:
        return kv.new_zeros((batch, 0, dim)), start
    kv = kv.view(batch, windows, ratio, 2 * dim)
    gate = gate.view(batch, windows, ratio, 2 * dim) + indexer.position_bias
    first_kv = kv.new_zeros((batch, 1, ratio, dim))
    first_gate = gate.new_full((batch, 1, ratio, dim), float("-inf"))
    if cache is not None:
        prior_kv, prior_gate = cache.update_overlap_state("indexer", kv, gate, dim)
        if prior_kv is not None and prior_gate is not None:
            first_kv, first_gate = prior_kv.unsqueeze(1), prior_gate.unsqueeze(1)
    before_kv = torch.cat([first_kv.to(kv.dtype), kv[:, :-1, :, :dim]], dim=1)
    before_gate = torch.cat([first_gate.to(gate.dtype), gate[:, :-1, :, :dim]], dim=1)
    slots = torch.cat([before_kv, kv[..., dim:]], dim=2)
    share = torch.cat([before_gate, gate[..., dim:]], dim=2)
    share = share.softmax(dim=2, dtype=torch.float32).to(slots.dtype)
    pooled: Tensor = indexer.kv_norm((slots * share).sum(dim=2))
    return pooled, start
