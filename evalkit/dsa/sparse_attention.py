"""Attention over the selected keys alone: memory O(S·(k + d)), time by k and not by the length.

Transformers' attention interface hands `indices` [B, S, k] to an attention function that is neither
eager nor sdpa. This one gathers a few query rows' keys at a time, and does so before they are
expanded: of a latent c and a rotated part that all heads share (multi-head latent attention,
DeepSeek-V2 report, eq. 9 to 13 with W_UK and W_UV absorbed),

    q·k[s] = (W_UK^T q_nope)·c[s] + q_rope·k_rope[s],    out = W_UV Σ_s p[s] c[s].

While the text is so short that expanding all of it costs less than gathering, it is expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from evalkit.dsa.families.sites import IndexerSites
from evalkit.dsa.overrides import override_method
from evalkit.dsa.scores import CHUNK_ELEMENTS
from evalkit.dsa.transformers_model import text_config_of

SPARSE, SPARSE_LINEAR = "dsa_sparse", "dsa_sparse_linear"
"""Names in transformers' interfaces; under the second, masks are of one row, see `_last_row`."""

GATHERED_ELEMENTS = 2**20  # of one gathering: 4 MiB in fp32, which a processor's cache holds
_GPU_CHUNKS = 64  # times larger there: a launch costs more than the memory
_HEADS_PER_GATHER = 32  # heads whose products take as long as gathering their key


class _LatentAttention(Protocol):
    """Attributes of transformers' attention modules."""

    qk_nope_head_dim: int
    v_head_dim: int
    kv_b_proj: nn.Module

    def expand_kv(self, latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, T, d] of [B, 1, T, r] and [B, 1, T, p]."""
        ...


@contextmanager
def selected_keys_gathered(
    model: nn.Module, sites: IndexerSites, *, linear_masks: bool
) -> Iterator[None]:
    """Let layers with an indexer attend by gathering, inside the block.

    Args:
        model: a transformers model.
        sites: its indexers, of a family with `sparse`.
        linear_masks: no [S, T] mask is made, only its last row. Right where indexers score by
            `evalkit.dsa`; those of the library want the whole mask.
    """
    _register()
    config = text_config_of(model)
    before = config._attn_implementation
    with ExitStack() as stack:
        stack.callback(setattr, config, "_attn_implementation", before)
        config._attn_implementation = SPARSE_LINEAR if linear_masks else SPARSE
        for owner in sites.owners:
            stack.enter_context(override_method(owner, "expand_kv", _latents))
        yield


def _latents(latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    """Takes the place of a layer's expansion, so that attention gathers what is stored."""
    return latent, rotated


@cache
def _register() -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for name, mask in ((SPARSE, sdpa_mask), (SPARSE_LINEAR, _last_row)):
        ALL_ATTENTION_FUNCTIONS.register(name, sparse_attention)
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, mask)


def _last_row(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int,
    kv_offset: int,
    mask_function: Callable[..., object],
    allow_is_causal_skip: bool,
    **options: object,
) -> Tensor | None:
    """Bool [B, 1, 1, T] where a causal mask is meant for an indexer: it says what is padding.

    Other layers of the model, packed texts and a cache with room at its end get the whole mask.
    """
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    causal = mask_function is causal_mask_function and not allow_is_causal_skip
    if causal and q_offset + q_length == kv_offset + kv_length:
        q_length, q_offset = 1, q_offset + q_length - 1
    mask: Tensor | None = sdpa_mask(
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        allow_is_causal_skip=allow_is_causal_skip,
        **options,
    )
    return mask


def sparse_attention(
    module: nn.Module,
    query: Tensor,
    latent: Tensor,
    rotated: Tensor,
    mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    indices: Tensor | None = None,
    s_aux: Tensor | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """Attention of the rows to their selected keys.

    Args:
        module: the layer's attention.
        query: [B, H, S, n + p], the last p channels rotated.
        latent: [B, 1, T, r].
        rotated: [B, 1, T, p].
        mask: [B, 1, S, T], or its last row [B, 1, 1, T] where the rest is causal.
        scaling: of the logits.
        dropout: of the shares.
        indices: [B, S, k] selected positions; -1, and further mentions of position 0, are no key.
            None: a layer without an indexer, whose keys and values are expanded.
        s_aux: logits [H] of a sink that takes part of every row's softmax.

    Returns:
        [B, S, H, v], zeros where a row has no key; and no weights.
    """
    if indices is None or mask is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, latent, rotated, mask, dropout=dropout, scaling=scaling, **options
        )
    layer = cast(_LatentAttention, module)
    selection = _Selection(indices, mask, latent.shape[2] - query.shape[2])
    if s_aux is None and _expanding_is_cheaper(layer, query, latent, rotated, indices):
        return _expanded(layer, query, latent, rotated, selection, scaling, dropout), None
    kind = _precision(query)
    up_key, up_value = _up_projections(layer, latent, kind)
    nope, sink = up_key.shape[1], None if s_aux is None else s_aux.to(kind)
    step = _rows_at_once(query, query.shape[1] * latent.shape[-1], CHUNK_ELEMENTS)
    blocks = []
    for start in range(0, query.shape[2], step):
        rows = query[:, :, start : start + step].transpose(1, 2).to(kind)
        absorbed = torch.einsum("brhn,hnc->brhc", rows[..., :nope], up_key)
        asked = torch.cat([absorbed, rows[..., nope:]], dim=-1) * scaling
        context = _gathered(asked, latent[:, 0], rotated[:, 0], selection, start, dropout, sink)
        blocks.append(torch.einsum("brhc,hvc->brhv", context, up_value).to(query.dtype))
    return torch.cat(blocks, dim=1), None


@dataclass(frozen=True, slots=True)
class _Selection:
    """What rows attend to.

    Attributes:
        indices: [B, S, k].
        mask: [B, 1, S or 1, T], bool or additive.
        first: position of row 0 in the text.
    """

    indices: Tensor
    mask: Tensor
    first: int

    def rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Positions [B, R, k], 0 where there is no key, and bool [B, R, k]: where there is one."""
        index = self.indices[:, start:stop].long()
        zero = index == 0
        named = (index >= 0) & ~(zero & (zero.cumsum(-1) > 1))
        index = index.clamp(min=0)
        if self.mask.shape[2] == 1 < self.indices.shape[1]:
            last = torch.arange(start, stop, device=index.device) + self.first
            named &= index <= last[:, None]
            seen = self.mask[:, 0]
        else:
            seen = self.mask[:, 0, start:stop]
        if seen.dtype != torch.bool:
            seen = seen > torch.finfo(seen.dtype).min / 2
        named &= seen.expand(*index.shape[:2], -1).gather(-1, index)
        return index.masked_fill(~named, 0), named


def _gathered(
    asked: Tensor,
    latent: Tensor,
    rotated: Tensor,
    selection: _Selection,
    start: int,
    dropout: float,
    sink: Tensor | None,
) -> Tensor:
    """Σ p·c [B, R, H, r] of absorbed, scaled queries [B, R, H, r + p] of the rows from `start`.

    A gradient does not keep what was gathered: it is gathered again. Without one, all is gathered
    into the same place: memory that is new each time costs more than filling it.
    """
    batch = len(latent)
    again = torch.is_grad_enabled() and (asked.requires_grad or latent.requires_grad)
    tables, apart = _tables(latent, rotated, in_place=not again)
    offset = torch.arange(batch, device=latent.device).view(-1, 1, 1) * apart
    keys = selection.indices.shape[-1]
    step = _rows_at_once(asked, keys * asked.shape[-1], GATHERED_ELEMENTS)
    places: tuple[Tensor | None, ...] = (None, None)
    if not again and latent.dtype == asked.dtype:
        count = batch * min(step, asked.shape[1]) * keys
        places = tuple(table.new_empty(count, table.shape[-1]) for table in tables)
    parts = []
    for at in range(0, asked.shape[1], step):
        rows = asked[:, at : at + step]
        index, named = selection.rows(start + at, start + at + rows.shape[1])
        inputs = rows, tables, index + offset, named, dropout, sink, places
        parts.append(
            checkpoint(_attend, *inputs, use_reentrant=False) if again else _attend(*inputs)
        )
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _tables(
    latent: Tensor, rotated: Tensor, *, in_place: bool
) -> tuple[tuple[Tensor, Tensor], int]:
    """Both [B, T, ·] as tables [N, ·], and how many of their rows lie from text to text.

    A cache with room behind every text is read where it is, the room included.
    """
    batch, length, _ = latent.shape
    step = _apart(latent)
    if not in_place or batch == 1 or step is None or step != _apart(rotated):
        return (latent.flatten(0, 1), rotated.flatten(0, 1)), length
    rows = (batch - 1) * step + length
    one, two = (p.as_strided((rows, p.shape[-1]), p.stride()[1:]) for p in (latent, rotated))
    return (one, two), step


def _apart(part: Tensor) -> int | None:
    """How many rows of [B, T, d] lie from text to text; None where they are no rows of a table."""
    width = max(part.shape[-1], 1)
    step, odd = divmod(part.stride(0), width)
    return None if odd or part.stride()[1:] != (width, 1) else step


def _attend(
    asked: Tensor,
    tables: tuple[Tensor, Tensor],
    index: Tensor,
    named: Tensor,
    dropout: float,
    sink: Tensor | None,
    places: tuple[Tensor | None, ...],
) -> Tensor:
    """As `_gathered`, at once; `index` [B, R, k] counts the rows of the tables [N, r or p]."""
    batch, rows, keys = index.shape
    width, flat = tables[0].shape[-1], asked.flatten(0, 1)
    seen, turned = (
        _picked(table, index, place).to(asked.dtype)
        for table, place in zip(tables, places, strict=True)
    )
    logits = torch.bmm(flat[..., :width], seen.mT)
    logits = torch.baddbmm(logits, flat[..., width:], turned.mT)
    hidden = ~named.view(batch * rows, 1, keys)
    logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
    if sink is not None:
        logits = torch.cat([logits, sink.view(1, -1, 1).expand(len(logits), -1, 1)], dim=-1)
    kind = torch.promote_types(logits.dtype, torch.float32)
    share = logits.softmax(-1, dtype=kind)[..., :keys]
    share = share.masked_fill(hidden, 0.0).to(asked.dtype)
    share = drop(share, dropout, training=dropout > 0)
    return torch.bmm(share, seen).view(batch, rows, -1, width)


def _picked(table: Tensor, index: Tensor, place: Tensor | None) -> Tensor:
    """Rows [B·R, k, d] of a table [N, d], written to `place` where there is one."""
    place = None if place is None else place[: index.numel()]
    rows = torch.index_select(table, 0, index.flatten(), out=place)
    return rows.view(index.shape[0] * index.shape[1], index.shape[2], table.shape[1])


def _expanded(
    layer: _LatentAttention,
    query: Tensor,
    latent: Tensor,
    rotated: Tensor,
    selection: _Selection,
    scaling: float,
    dropout: float,
) -> Tensor:
    """Attention [B, S, H, v] to a text that is expanded whole, some rows of its mask at a time."""
    key, value = type(layer).expand_kv(layer, latent, rotated)
    step = _rows_at_once(query, key.shape[2], CHUNK_ELEMENTS)
    parts = []
    for start in range(0, query.shape[2], step):
        rows = query[:, :, start : start + step]
        index, named = selection.rows(start, start + rows.shape[2])
        mask = torch.zeros(*index.shape[:2], key.shape[2], dtype=torch.bool, device=index.device)
        mask.scatter_(-1, index, named)
        mask[..., 0] = (named & (index == 0)).any(-1)  # what is no key stands at 0, too
        out = scaled_dot_product_attention(
            rows, key, value, mask[:, None], dropout_p=dropout, scale=scaling
        )
        parts.append(out.transpose(1, 2))
    return torch.cat(parts, dim=1)


def _expanding_is_cheaper(
    layer: _LatentAttention, query: Tensor, latent: Tensor, rotated: Tensor, indices: Tensor
) -> bool:
    """Whether attending to the whole text takes less time, counted in products per head.

    Those under a mask take twice as long as plain ones (`benchmarks/attention.py`).
    """
    rows, text, rank, rope = query.shape[2], *latent.shape[2:], rotated.shape[-1]
    widths = layer.qk_nope_head_dim + layer.v_head_dim
    expanded = text * rank * widths + 2 * rows * text * (widths + rope)
    selected = indices.shape[-1] * (2 * rank + rope) * (1 + _HEADS_PER_GATHER / query.shape[1])
    return expanded < rows * (rank * widths + selected)


def _up_projections(
    layer: _LatentAttention, latent: Tensor, kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """W_UK [H, n, r] and W_UV [H, v, r]."""
    project = layer.kv_b_proj
    if type(project) is nn.Linear and not project.weight.is_meta:
        weight: Tensor = project.weight
    else:  # quantised, adapted or kept elsewhere: what it makes of unit latents
        unit = torch.eye(latent.shape[-1], dtype=latent.dtype, device=latent.device)
        weight = project(unit).T
    nope, width = layer.qk_nope_head_dim, layer.qk_nope_head_dim + layer.v_head_dim
    by_head = weight.to(kind).view(-1, width, latent.shape[-1])
    return by_head[:, :nope], by_head[:, nope:]


def _precision(query: Tensor) -> torch.dtype:
    """The precision to multiply in: CPUs have no fast products of half precision."""
    low = query.dtype in (torch.bfloat16, torch.float16)
    return torch.float32 if low and query.device.type == "cpu" else query.dtype


def _rows_at_once(like: Tensor, elements: int, bound: int) -> int:
    """How many rows of [B, ..., elements] are worked on at a time."""
    bound *= 1 if like.device.type == "cpu" else _GPU_CHUNKS
    return max(1, bound // (like.shape[0] * elements))
