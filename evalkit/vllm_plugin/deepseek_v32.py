"""DeepSeek-V3.2 and GLM-5 in vLLM: MLA layers of two implementations.

Retention is the engine's own: `request.configured` writes the pattern into the configuration, and
shared layers are built without an indexer. Here the lag is added: each full layer writes its slot,
each layer's attention reads its own. The merge runs where the engine says that the selection of a
layer is ready (`record_logical_topk_ready`): before that, its conversion to cache slots may not
begin; after it, on a side stream, it may.
"""

from __future__ import annotations

from typing import Any

from evalkit.vllm_plugin.buffers import SelectionBuffers
from evalkit.vllm_plugin.modules import layer_id, named
from evalkit.vllm_plugin.routing import Route

CUDA, GENERIC = "DeepseekV32Attention", "MultiHeadLatentAttentionWrapper"


def layers(model: Any) -> dict[int, Any]:
    """Sparse attention modules by absolute layer id."""
    optimised = {layer_id(m.layer_name): m for m in named(model, CUDA)}
    generic = (m for m in named(model, GENERIC) if m.is_sparse)
    return optimised or {layer_id(m.prefix): m for m in generic}


def own_buffer(attention: Any) -> Any:
    """The engine's buffer [tokens, top-k]."""
    return _implementation(attention).topk_indices_buffer


def bind(attention: Any, route: Route, buffers: SelectionBuffers) -> None:
    """Let a layer write and read the buffers of its route."""
    implementation = _implementation(attention)
    if route.write is not None:
        slot = buffers.slots[route.write]
        attention.topk_indices_buffer = slot
        attention.indexer.topk_indices_buffer = slot
        attention.indexer.indexer_op.topk_indices_buffer = slot
    implementation.topk_indices_buffer = buffers.slots[route.read]
    if route.merge is not None:
        _merge_when_ready(attention, implementation, route, buffers)


def _merge_when_ready(
    attention: Any, implementation: Any, route: Route, buffers: SelectionBuffers
) -> None:
    rows = 0
    eager = "forward" if hasattr(attention, "mla_attn") else "_sparse_indexer_and_attn"
    run, ready = getattr(attention, eager), implementation.record_logical_topk_ready

    def counted(positions: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal rows
        rows = positions.shape[0]
        return run(positions, *args, **kwargs)

    def merged() -> None:
        buffers.merge(route, rows)
        ready()

    setattr(attention, eager, counted)
    implementation.record_logical_topk_ready = merged


def _implementation(attention: Any) -> Any:
    return attention.mla_attn.impl if hasattr(attention, "mla_attn") else attention.impl
