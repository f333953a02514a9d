"""DeepSeek-V4 in vLLM: attention layers with a compressor, every fourth key of which is indexed.

The model class of every platform has layers of one base class; each holds the buffer that its
attention reads, and its indexer the one that it writes. A shared layer still feeds its indexer's
compressor, so that its index keys are whole; query, weights, scores and top-k are left out.
"""

from __future__ import annotations

from typing import Any

from evalkit.vllm_plugin.buffers import SelectionBuffers
from evalkit.vllm_plugin.modules import layer_id, named
from evalkit.vllm_plugin.routing import Route

BASE = "DeepseekV4Attention"


def layers(model: Any) -> dict[int, Any]:
    """Attention modules with an indexer by absolute layer id."""
    modules = (m for m in named(model, BASE) if m.indexer is not None)
    return {layer_id(module.prefix): module for module in modules}


def own_buffer(attention: Any) -> Any:
    """The engine's buffer [tokens, top-k]."""
    return attention.topk_indices_buffer


def bind(attention: Any, route: Route, buffers: SelectionBuffers) -> None:
    """Let a layer write and read the buffers of its route."""
    indexer = attention.indexer
    if route.write is None:
        _only_compress(indexer)
    else:
        indexer.topk_indices_buffer = buffers.slots[route.write]
        indexer.indexer_op.topk_indices_buffer = buffers.slots[route.write]
    attention.topk_indices_buffer = buffers.slots[route.read]
    if route.merge is None:
        return
    attend = attention.forward_mqa

    def merged(q: Any, kv: Any, positions: Any, output: Any) -> None:
        buffers.merge(route, positions.shape[0])
        attend(q, kv, positions, output)

    attention.forward_mqa = merged


def _only_compress(indexer: Any) -> None:
    """What vLLM's indexer does, without query, weights, scores and top-k."""

    def forward(
        hidden_states: Any,  # noqa: ARG001
        qr: Any,  # noqa: ARG001
        compressed_kv_score: Any,
        indexer_weights: Any,  # noqa: ARG001
        positions: Any,
        rotary_emb: Any,
        qr_scale: Any = None,  # noqa: ARG001
        skip_compressor: bool = False,
    ) -> tuple[None, None, None]:
        if not skip_compressor:
            indexer.compressor(compressed_kv_score, positions, rotary_emb)
        return None, None, None  # without a query vLLM does not score

    indexer.forward = forward
    indexer.weights_proj.forward = lambda *_: (None, None)
