"""Plain-torch stand-ins for kernels that vLLM's CPU build has for AVX-512 with AMX only.

DeepSeek-V4 on a CPU needs a dozen C++ kernels that are compiled into one library of the wheel, and
into neither its AVX-512 nor its AVX2 one. Where they are missing these take their places, so that
vLLM's own model, scheduler, caches and metadata run; where they are there, nothing is replaced.
Caches keep the engine's byte layout (576 bytes and 8 scales per entry; 128 and one float32 scale
per index key); the arithmetic is float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

_NOPE, _ROPE, _BLOCK = 448, 64, 64
_ROW, _SCALES = _NOPE + 2 * _ROPE, 8
_FP8 = torch.float8_e4m3fn
_LIBRARY: list[torch.library.Library] = []

SCHEMAS = {
    "convert_weight_packed": "(Tensor weight) -> Tensor",
    "bmm_cpu": "(Tensor(a!) out, Tensor a, Tensor b, bool vnni, Tensor? scale) -> ()",
    "inverse_gptj_rope_o_proj_cpu": "(Tensor o, Tensor pos, Tensor cos_sin, int dim) -> Tensor",
    "fused_qnorm_rope_kv_insert_cpu": (
        "(Tensor q, Tensor kv, Tensor pos, Tensor(a!) cache, Tensor slots, Tensor cos_sin,"
        " int heads, float eps, int block) -> Tensor"
    ),
    "save_partial_states_cpu": (
        "(Tensor kv, Tensor score, Tensor ape, Tensor pos, Tensor(a!) state, Tensor slots) -> ()"
    ),
    "compress_norm_rope_store_cpu": (
        "(Tensor state, Tensor gather, Tensor pos, Tensor slots, Tensor weight, float eps,"
        " Tensor cos_sin, Tensor(a!) cache, int block, int ratio) -> ()"
    ),
    "fused_indexer_q_rope_quant_cpu": (
        "(Tensor pos, Tensor q, Tensor cos_sin, Tensor(a!) q_fp8, Tensor weights, float softmax,"
        " float head, Tensor(b!) weights_out) -> ()"
    ),
    "fp8_paged_mqa_logits_cpu": (
        "(Tensor q, Tensor cache, Tensor weight, Tensor lens, Tensor table, int block, int longest)"
        " -> Tensor"
    ),
    "topk_transform_512_cpu": (
        "(Tensor scores, Tensor lens, Tensor tables, Tensor(a!) pages, int page,"
        " Tensor(b!)? raw) -> ()"
    ),
    "flash_mla_with_kvcache_cpu": (
        "(Tensor(a!) out, Tensor q, Tensor near, Tensor near_slots, int near_block, Tensor far,"
        " Tensor far_slots, int far_block, Tensor sink, float scale) -> ()"
    ),
    "biased_topk_cpu": (
        "(Tensor hidden, Tensor gating, Tensor bias, int topk, bool renormalize, str scoring,"
        " int shared, float? factor, bool scaled) -> (Tensor, Tensor)"
    ),
}
SCHEMAS["compress_norm_rope_store_indexer_cpu"] = SCHEMAS["compress_norm_rope_store_cpu"]


def install() -> tuple[str, ...]:
    """Register the stand-ins that are missing; their names."""
    missing = tuple(name for name in SCHEMAS if not hasattr(torch.ops._C, name))
    if missing:
        library = torch.library.Library("_C", "FRAGMENT")
        _LIBRARY.append(library)
        for name in missing:
            library.define(name + SCHEMAS[name])
            library.impl(name, globals()[name], "CPU")
        _plain_hyper_connections()
    return missing


def _plain_hyper_connections() -> None:
    """vLLM has these in plain torch, too; its CPU path calls C++."""
    from vllm.model_executor.kernels import mhc
    from vllm.model_executor.kernels.mhc.torch import mhc_post_torch, mhc_pre_torch

    def head(x: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm: float, eps: float) -> Tensor:
        flat = x.flatten(-2).float()
        mixes = flat @ fn.t() * torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm)
        share = torch.sigmoid(mixes * scale + base) + eps
        return (share.unsqueeze(-1) * x.float()).sum(-2).to(x.dtype)

    def pre(*args, n_splits=1, norm_weight=None, norm_eps=0.0):
        return mhc_pre_torch(*args[:9])

    mhc.mhc_pre_cpu, mhc.mhc_post_cpu, mhc.hc_head_fused_cpu = pre, mhc_post_torch, head


def rotated(x: Tensor, positions: Tensor, cos_sin: Tensor, sign: float = 1.0) -> Tensor:
    """Interleaved pairs of the last 64 channels of [N, …, d], rotated to a position each."""
    cos, sin = cos_sin[positions].float().chunk(2, dim=-1)
    shape = (x.shape[0], *(1 for _ in range(x.dim() - 2)), _ROPE // 2)
    cos, sin = cos.reshape(shape), sign * sin.reshape(shape)
    plain, tail = x.float().split([x.shape[-1] - _ROPE, _ROPE], dim=-1)
    even, odd = tail[..., 0::2], tail[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([plain, turned], dim=-1)


def _scale(x: Tensor) -> Tensor:
    """Power of two by which the last dimension fits FP8."""
    largest = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-4)
    return torch.exp2(torch.ceil(torch.log2(largest / 448.0)))


def _write(cache: Tensor, slots: Tensor, block: int, parts: list[Tensor]) -> None:
    """Bytes of each part [N, w], one part after the other within a block of the cache."""
    where = slots >= 0
    rows, offsets = slots[where] // block, slots[where] % block
    start = 0
    for part in parts:
        width = part.shape[-1]
        columns = start + offsets.unsqueeze(-1) * width + torch.arange(width)
        cache[rows.unsqueeze(-1), columns] = part[where]
        start += block * width


def _read(cache: Tensor, slots: Tensor, block: int, widths: tuple[int, ...]) -> list[Tensor]:
    rows, offsets = slots // block, slots % block
    parts, start = [], 0
    for width in widths:
        columns = start + offsets.unsqueeze(-1) * width + torch.arange(width)
        parts.append(cache[rows.unsqueeze(-1), columns])
        start += block * width
    return parts


def _write_entries(cache: Tensor, slots: Tensor, block: int, entries: Tensor) -> None:
    """Entries [N, 512]: FP8 by blocks of 64, the rotated channels in bfloat16."""
    blocks = entries[:, :_NOPE].to(torch.bfloat16).float().unflatten(-1, (-1, _BLOCK))
    scale = _scale(blocks)
    values = (blocks / scale).clamp(-448, 448).to(_FP8).flatten(1).view(torch.uint8)
    tail = entries[:, _NOPE:].to(torch.bfloat16).contiguous().view(torch.uint8)
    exponents = (torch.log2(scale.squeeze(-1)) + 127).to(torch.uint8)
    exponents = torch.nn.functional.pad(exponents, (0, _SCALES - exponents.shape[1]))
    _write(cache, slots, block, [torch.cat([values, tail], dim=1), exponents])


def _read_entries(cache: Tensor, slots: Tensor, block: int) -> Tensor:
    rows, exponents = _read(cache, slots, block, (_ROW, _SCALES))
    values = rows[:, :_NOPE].contiguous().view(_FP8).float().unflatten(-1, (-1, _BLOCK))
    scale = torch.exp2(exponents[:, : _NOPE // _BLOCK].float() - 127).unsqueeze(-1)
    tail = rows[:, _NOPE:].contiguous().view(torch.bfloat16).float()
    return torch.cat([(values * scale).flatten(1), tail], dim=1)


def convert_weight_packed(weight: Tensor) -> Tensor:
    return weight.clone()


def bmm_cpu(out: Tensor, a: Tensor, b: Tensor, vnni: bool, scale: Tensor | None) -> None:
    out.copy_(torch.bmm(a, b.transpose(1, 2)))


def inverse_gptj_rope_o_proj_cpu(o: Tensor, pos: Tensor, cos_sin: Tensor, dim: int) -> Tensor:
    return rotated(o, pos, cos_sin, -1.0)


def fused_qnorm_rope_kv_insert_cpu(
    q: Tensor,
    kv: Tensor,
    pos: Tensor,
    cache: Tensor,
    slots: Tensor,
    cos_sin: Tensor,
    heads: int,
    eps: float,
    block: int,
) -> Tensor:
    normed = q.float() * torch.rsqrt(q.float().square().mean(-1, keepdim=True) + eps)
    count = slots.shape[0]
    _write_entries(cache, slots, block, rotated(kv[:count], pos[:count], cos_sin))
    return rotated(normed, pos, cos_sin).to(q.dtype)


def save_partial_states_cpu(
    kv: Tensor, score: Tensor, ape: Tensor, pos: Tensor, state: Tensor, slots: Tensor
) -> None:
    count = slots.shape[0]
    biased = score[:count] + ape[pos[:count] % ape.shape[0]]
    where = slots >= 0
    rows, offsets = slots[where] // state.shape[1], slots[where] % state.shape[1]
    state[rows, offsets] = torch.cat([kv[:count], biased], dim=-1)[where].to(state.dtype)


def _compressed(
    state: Tensor,
    gather: Tensor,
    pos: Tensor,
    slots: Tensor,
    weight: Tensor,
    eps: float,
    cos_sin: Tensor,
    ratio: int,
) -> tuple[Tensor, Tensor]:
    """Rotated entries of windows that end in this batch, and their slots."""
    count, head = slots.shape[0], weight.shape[0]
    ends = ((pos[:count] + 1) % ratio == 0) & (slots >= 0)
    gather, pos, slots = gather[:count][ends], pos[:count][ends], slots[ends]
    there = gather >= 0
    gather = gather.clamp(min=0)
    rows = state[gather // state.shape[1], gather % state.shape[1]]  # [n, window, 2·c·head]
    kv, score = rows.float().chunk(2, dim=-1)
    if gather.shape[1] > ratio:  # overlapping windows: the older half has a series of its own
        halves = [(kv[:, :ratio, :head], kv[:, ratio:, head:])]
        halves.append((score[:, :ratio, :head], score[:, ratio:, head:]))
        kv, score = (torch.cat(pair, dim=1) for pair in halves)
    score = score.masked_fill(~there.unsqueeze(-1), float("-inf"))
    entry = (kv.masked_fill(~there.unsqueeze(-1), 0.0) * score.softmax(dim=1)).sum(dim=1)
    entry = entry * torch.rsqrt(entry.square().mean(-1, keepdim=True) + eps) * weight
    return rotated(entry, pos // ratio * ratio, cos_sin), slots


def compress_norm_rope_store_cpu(
    state, gather, pos, slots, weight, eps, cos_sin, cache, block, ratio
) -> None:
    entries, slots = _compressed(state, gather, pos, slots, weight, eps, cos_sin, ratio)
    _write_entries(cache, slots, block, entries)


def compress_norm_rope_store_indexer_cpu(
    state, gather, pos, slots, weight, eps, cos_sin, cache, block, ratio
) -> None:
    keys, slots = _compressed(state, gather, pos, slots, weight, eps, cos_sin, ratio)
    keys = keys.to(torch.bfloat16).float()
    scale = _scale(keys)
    values = (keys / scale).clamp(-448, 448).to(_FP8).view(torch.uint8)
    _write(cache, slots, block, [values, scale.contiguous().view(torch.uint8)])


def fused_indexer_q_rope_quant_cpu(
    pos: Tensor,
    q: Tensor,
    cos_sin: Tensor,
    q_fp8: Tensor,
    weights: Tensor,
    softmax: float,
    head: float,
    weights_out: Tensor,
) -> None:
    turned = rotated(q, pos, cos_sin)
    scale = _scale(turned)
    q_fp8.copy_((turned / scale).clamp(-448, 448).to(_FP8))
    weights_out.copy_(weights * scale.squeeze(-1) * softmax * head)


def fp8_paged_mqa_logits_cpu(
    q: Tensor, cache: Tensor, weight: Tensor, lens: Tensor, table: Tensor, block: int, longest: int
) -> Tensor:
    logits = torch.full((q.shape[0], longest), float("-inf"))
    lens = lens.flatten()
    tables, row_of = torch.unique(table, dim=0, return_inverse=True)  # one per request
    for request, pages in enumerate(tables):
        rows = (row_of == request).nonzero().flatten()
        count = int(lens[rows].max())
        if count == 0:
            continue
        index = torch.arange(count)
        slots = pages[index // block].long() * block + index % block
        values, scale = _read(cache, slots, block, (128, 4))
        keys = values.contiguous().view(_FP8).float() * scale.contiguous().view(torch.float32)
        for part in rows.split(512):
            scores = torch.relu(torch.einsum("nhd,sd->nhs", q[part].float(), keys))
            total = torch.einsum("nhs,nh->ns", scores, weight[part].float())
            visible = index < lens[part].unsqueeze(-1)
            logits[part, :count] = total.masked_fill(~visible, float("-inf"))
    return logits


def topk_transform_512_cpu(
    scores: Tensor, lens: Tensor, tables: Tensor, pages: Tensor, page: int, raw: Tensor | None
) -> None:
    if raw is None:
        return
    width = min(512, scores.shape[1])
    values, index = scores.topk(width, dim=-1)
    raw[:, width:] = -1
    raw[:, :width] = index.masked_fill(values == float("-inf"), -1).to(raw.dtype)


def flash_mla_with_kvcache_cpu(
    out: Tensor,
    q: Tensor,
    near: Tensor,
    near_slots: Tensor,
    near_block: int,
    far: Tensor,
    far_slots: Tensor,
    far_block: int,
    sink: Tensor,
    scale: float,
) -> None:
    """One softmax over window, compressed entries and sink, for tokens in chunks.

    A chunk reads each slot that one of its tokens names once; the others are masked.
    """
    heads = q.shape[1]
    for rows in torch.arange(near_slots.shape[0]).split(256):
        entries, masks = [], []
        for cache, slots, block in ((near, near_slots, near_block), (far, far_slots, far_block)):
            named = slots[rows]
            valid = named >= 0
            union, place = named[valid].unique(return_inverse=True)
            # In the order of their first reader: where a block lies must not move a rounding.
            first = torch.full_like(union, len(place))
            first.scatter_reduce_(0, place, torch.arange(len(place)), "amin")
            order = first.argsort()
            mask = torch.zeros((len(rows), len(union)), dtype=torch.bool)
            mask[valid.nonzero()[:, 0], order.argsort()[place]] = True
            entries.append(_read_entries(cache, union[order], block))
            masks.append(mask)
        kv, mask = torch.cat(entries), torch.cat(masks, dim=1)
        scores = torch.einsum("nhd,sd->nhs", q[rows].float(), kv) * scale
        scores = scores.masked_fill(~mask.unsqueeze(1), float("-inf"))
        sinks = sink[:heads].float().view(1, heads, 1).expand(len(rows), -1, 1)
        share = torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
        out[rows] = torch.einsum("nhs,sd->nhd", share, kv).to(out.dtype)


def biased_topk_cpu(
    hidden: Tensor,
    gating: Tensor,
    bias: Tensor,
    topk: int,
    renormalize: bool,
    scoring: str,
    shared: int,
    factor: float | None,
    scaled: bool,
) -> tuple[Tensor, Tensor]:
    scores = torch.nn.functional.softplus(gating.float()).sqrt()
    chosen = (scores + bias).topk(topk, dim=-1).indices
    weights = scores.gather(1, chosen)
    weights = weights / weights.sum(dim=-1, keepdim=True) * (factor or 1.0)
    return weights, chosen.to(torch.int32)
