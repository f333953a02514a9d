"""DeepSeek-V3.2 and GLM-5 on vLLM's CPU: sparse MLA and index scores in plain torch, from outside.

vLLM has no CPU path for these families. Model, layers, scheduler, paged caches and metadata are
vLLM's own; what is put in their place is the attention backend (`PlainSparseBackend`), the
indexer's cache insert, scores and top-k (`select`), and the rounding of index queries and keys to
FP8, which is left out: index keys lie in the engine's paged cache as they are. The CPU kernel of
rotary embeddings rotates the wrong channels where heads are parts of wider rows, as here: vLLM's
formula in torch takes its place. DeepSeek-V4 keeps vLLM's own CPU path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention.sparse_mla_attention import SharedTopkIndicesBuffer
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionMetadata,
    AttentionMetadataBuilder,
    MLAAttentionImpl,
    MultipleOf,
)

QUERIES = 128  # scored or attended to at once


def install() -> None:
    """Put all of it in place, once per process."""
    from vllm.model_executor.layers.sparse_attn_indexer import SparseAttnIndexer
    from vllm.model_executor.models import deepseek_v2
    from vllm.platforms.cpu import CpuPlatform

    if getattr(CpuPlatform, "_plain_mla", False):
        return
    CpuPlatform._plain_mla = True
    choose = CpuPlatform.get_attn_backend_cls

    def chosen(selected_backend: Any, attn_selector_config: Any, *rest: Any, **more: Any) -> str:
        if attn_selector_config.use_sparse:
            return f"{PlainSparseBackend.__module__}.{PlainSparseBackend.__qualname__}"
        return choose(selected_backend, attn_selector_config, *rest, **more)

    CpuPlatform.get_attn_backend_cls = staticmethod(chosen)

    score = SparseAttnIndexer.forward_cpu

    def scored(op: Any, hidden: Tensor, q: Tensor, k: Tensor | None, weights: Tensor) -> Tensor:
        if op.skip_k_cache_insert:  # DeepSeek-V4 fills its cache elsewhere
            return score(op, hidden, q, k, weights)
        return select(op, hidden, q, k, weights)

    SparseAttnIndexer.forward_cpu = scored

    class UnroundedCache(deepseek_v2.DeepseekV32IndexerCache):
        """Index keys [blocks, block, channels] in the dtype of the model."""

        def __init__(self, head_dim: int, dtype: Any, prefix: str, cache_config: Any) -> None:
            scales = head_dim // 132 * 4  # per block of 128 channels, which are bytes
            super().__init__(head_dim - scales, torch.get_default_dtype(), prefix, cache_config)

    rope = deepseek_v2.get_rope

    def in_torch(*args: Any, **options: Any) -> Any:
        module = rope(*args, **options)
        module._forward_method = module.forward_native
        return module

    deepseek_v2.get_rope = in_torch
    deepseek_v2.DeepseekV32IndexerCache = UnroundedCache
    deepseek_v2.per_token_group_quant_fp8 = lambda q, *_, **__: (q, q.new_ones(len(q), 1))


def select(op: Any, hidden: Tensor, q: Tensor, k: Tensor | None, weights: Tensor) -> Tensor:
    """What `SparseAttnIndexer` does: keep the keys, score those visible, write the best positions.

    Args:
        op: the layer's indexer operation.
        hidden: [tokens, hidden size].
        q: index queries [tokens, heads, channels].
        k: index keys [tokens, channels].
        weights: of the heads, with all scales, [tokens, heads].
    """
    metadata = get_forward_context().attn_metadata
    buffer = op.topk_indices_buffer
    if not isinstance(metadata, dict):
        return buffer  # a profiling run
    metadata = metadata[op.k_cache.prefix]
    cache, slots = op.k_cache.kv_cache, metadata.slot_mapping
    write(cache, slots, k[: len(slots)])
    buffer[: hidden.shape[0]] = -1
    for rows, tables, lengths in batches(metadata):
        for part in torch.arange(rows.start, rows.stop).split(QUERIES):
            at = part - rows.start
            keys = read(cache, tables[at], int(lengths[at].max()))
            products = torch.einsum("thd,tsd->ths", q[part].float(), keys.float()).relu()
            scores = torch.einsum("ths,th->ts", products, weights[part].float())
            hidden_keys = torch.arange(scores.shape[1]) >= lengths[at].unsqueeze(1)
            scores = scores.masked_fill(hidden_keys, float("-inf"))
            values, best = scores.topk(min(op.topk_tokens, scores.shape[1]), dim=-1)
            best = best.masked_fill(values == float("-inf"), -1)
            buffer[part, : best.shape[1]] = best.to(buffer.dtype)
    return buffer


def batches(metadata: Any) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Rows of a forward; block table [rows, blocks] and number of visible keys [rows]."""
    decode, prefill = metadata.decode, metadata.prefill
    if decode is not None:
        lengths = decode.seq_lens.reshape(-1)[: metadata.num_decode_tokens]
        yield slice(0, metadata.num_decode_tokens), decode.block_table, lengths
    for chunk in [] if prefill is None else prefill.chunks:
        starts = chunk.cu_seq_lens
        request = torch.searchsorted(starts, chunk.cu_seqlen_ks, right=True) - 1
        lengths = chunk.cu_seqlen_ke - chunk.cu_seqlen_ks
        yield slice(chunk.token_start, chunk.token_end), chunk.block_table[request], lengths


def write(cache: Tensor, slots: Tensor, rows: Tensor) -> None:
    """Rows into slots of a paged cache [blocks, block, channels]; slot -1 is padding."""
    kept = slots >= 0
    block = cache.shape[1]
    cache[slots[kept] // block, slots[kept] % block] = rows[kept].to(cache.dtype)


def read(cache: Tensor, tables: Tensor, length: int) -> Tensor:
    """The first entries of every row's text, [rows, length, channels]."""
    block = cache.shape[1]
    at = torch.arange(length)
    return cache[tables[:, at // block].long(), at % block]


@dataclass
class PlainMetadata(AttentionMetadata):
    """Of one forward; all tokens go through the sparse path, in vLLM's words as if they decoded."""

    num_actual_tokens: int
    slot_mapping: Tensor
    block_table: Tensor
    request: Tensor
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int = 0


class PlainBuilder(AttentionMetadataBuilder[PlainMetadata]):
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.NEVER

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False):
        common = common_attn_metadata
        sizes = torch.diff(common.query_start_loc_cpu)
        return PlainMetadata(
            num_actual_tokens=common.num_actual_tokens,
            slot_mapping=common.slot_mapping,
            block_table=common.block_table_tensor,
            request=torch.repeat_interleave(torch.arange(len(sizes)), sizes),
            num_decodes=common.num_reqs,
            num_decode_tokens=common.num_actual_tokens,
        )


class PlainImpl(MLAAttentionImpl[PlainMetadata], SharedTopkIndicesBuffer):
    is_sparse = True
    supports_dense_mha_prefill = False
    supports_quant_query_input = False
    dcp_world_size = 1

    def __init__(self, num_heads: int, head_size: int, scale: float, *_: Any, **options: Any):
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.rank = options["kv_lora_rank"]
        self.init_topk_indices_buffer(options["indexer"], options["topk_indices_buffer"])

    def record_logical_topk_ready(self) -> None:
        """Nothing to wait for."""

    def do_kv_cache_update(
        self, kv_c_normed: Tensor, k_pe: Tensor, kv_cache: Tensor, slot_mapping: Tensor, *_: Any
    ) -> None:
        slots = slot_mapping.flatten()
        rows = torch.cat([kv_c_normed, k_pe.squeeze(1)], dim=-1)
        if kv_cache.numel():
            write(kv_cache, slots, rows[: len(slots)])

    def forward_mqa(
        self, q: Any, kv_c_and_k_pe_cache: Tensor, attn_metadata: PlainMetadata, layer: Any
    ) -> tuple[Tensor, None]:
        """Softmax over the selected positions of each token.

        Args:
            q: [tokens, heads, rank + rotary channels], or both parts.
            kv_c_and_k_pe_cache: [blocks, block, rank + rotary channels].
        """
        q = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
        cache = kv_c_and_k_pe_cache
        block = cache.shape[1]
        out = q.new_empty(len(q), self.num_heads, self.rank)
        for rows in torch.arange(len(q)).split(QUERIES):
            chosen = self.topk_indices_buffer[rows].long()
            tables = attn_metadata.block_table[attn_metadata.request[rows]].long()
            at = chosen.clamp(min=0)
            entries = cache[tables.gather(1, at // block), at % block].float()
            scores = torch.einsum("thd,tsd->ths", q[rows].float(), entries) * self.scale
            scores = scores.masked_fill((chosen < 0).unsqueeze(1), float("-inf"))
            values = torch.einsum("ths,tsd->thd", scores.softmax(-1), entries[..., : self.rank])
            out[rows] = values.to(out.dtype)
        return out, None


class PlainSparseBackend(AttentionBackend):
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float32, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto"]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[PlainImpl]:
        return PlainImpl

    @staticmethod
    def get_builder_cls() -> type[PlainBuilder]:
        return PlainBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return [MultipleOf(16)]

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []

    @classmethod
    def is_mla(cls) -> bool:
        return True

    @classmethod
    def is_sparse(cls) -> bool:
        return True
