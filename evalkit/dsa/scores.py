"""Differentiable index scores in query chunks, and the selection made of them.

    I[t,s] = Σ_h  w[t,h] · ReLU(q[t,h] · k[s]) · d^-1/2        (DeepSeek-V3.2 report, eq. 1)

Products exist for one head and one chunk of queries at a time, forward and backward, so memory
beyond the result does not grow with the square of the length, nor with the heads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from evalkit.dsa.features import IndexFeatures, take_rows, without_padding
from evalkit.dsa.selection import Ranking, SelectionPolicy

CHUNK_ELEMENTS = 2**22  # elements of one [B, rows, T] block: 16 MiB in fp32
_CPU_ROWS = 128  # of a block in `select` there: fewer keys lie ahead of its last row
_AT_ONCE = 2**20  # elements of [B, 1, H, T] up to which one product of all heads is faster


def index_scores(
    features: IndexFeatures, rows: Tensor | None = None, *, chunk_elements: int = CHUNK_ELEMENTS
) -> Tensor:
    """Scores of some query rows against every key, -inf where a key is not visible.

    Args:
        features: from `evalkit.dsa.index_features`.
        rows: row numbers, [R] for all sequences alike or [B, R]; default: every row.
        chunk_elements: upper bound of the largest temporary, in elements (at least one row).

    Returns:
        fp32 [B, R, T]; differentiable with respect to the features.
    """
    if rows is None:
        rows = torch.arange(features.query.shape[1], device=features.query.device)
    parts = [_chunk_scores(features, chunk) for chunk in row_chunks(features, rows, chunk_elements)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def select(
    features: IndexFeatures,
    topk: int,
    rows: Tensor | None = None,
    *,
    policy: SelectionPolicy | None = None,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Tensor:
    """The indexer's selection: top-k keys per row, best first, -1 where fewer can be selected.

    Memory is linear in the length: scores of one chunk of rows exist at a time.

    Args:
        features: from `evalkit.dsa.index_features`.
        topk: keys per row.
        rows: as in `index_scores`.
        policy: whose scores are taken; default: those of `index_scores`.
        chunk_elements: likewise.

    Returns:
        int64 [B, R, min(topk, T)].
    """
    if rows is None:
        rows = torch.arange(features.query.shape[1], device=features.query.device)
    width, moved = min(topk, features.key.shape[1]), None
    with torch.no_grad():
        if policy is not None:
            features, moved = without_padding(features)
        parts = []
        most = _CPU_ROWS if rows.device.type == "cpu" else rows.shape[-1]
        for chunk in row_chunks(features, rows, chunk_elements, most):
            seen = _seen_keys(features, chunk)  # later keys cannot be selected: leave them out
            if policy is None:
                scores = _chunk_scores(features, chunk, seen)
            else:
                scores = policy.scores(_first_keys(features, seen), chunk)
            value, index = scores.topk(min(width, seen), dim=-1)
            index = index if moved is None else index + moved
            index = index.masked_fill(value == float("-inf"), -1)
            parts.append(torch.nn.functional.pad(index, (0, width - index.shape[-1]), value=-1))
    return torch.cat(parts, dim=1)


def raw_scores(features: IndexFeatures, keys: Tensor) -> Tensor:
    """Scores of every row against other keys [B, N, d] than the features' own: fp32 [B, R, N]."""
    weight = features.weight * features.scale
    scores: Tensor = _HeadSum.apply(features.query, keys, weight)  # type: ignore[no-untyped-call]
    return scores


def row_chunks(
    features: IndexFeatures,
    rows: Tensor,
    chunk_elements: int = CHUNK_ELEMENTS,
    most: int = sys.maxsize,
) -> Iterator[Tensor]:
    """Split row numbers ([R] or [B, R]) so that a [B, rows, T] block keeps within bounds."""
    per_row = max(1, features.query.shape[0] * features.key.shape[1])
    yield from torch.split(rows, max(1, min(most, chunk_elements // per_row)), dim=-1)


def _seen_keys(features: IndexFeatures, rows: Tensor) -> int:
    """How many leading keys the last of these rows may read (at least one, for topk)."""
    last = int(take_rows(features.row_positions, rows).max())
    return max(1, min(features.key.shape[1], (last + 1) // features.ratio))


def _first_keys(features: IndexFeatures, count: int) -> IndexFeatures:
    valid = features.key_valid
    return replace(
        features,
        key=features.key[:, :count],
        key_valid=None if valid is None else valid[:, :count],
    )


def _chunk_scores(features: IndexFeatures, rows: Tensor, keys: int | None = None) -> Tensor:
    """Scores [B, R, T] of one chunk of rows, or of its first `keys` keys only."""
    query, weight, positions = (
        take_rows(part, rows) for part in (features.query, features.weight, features.row_positions)
    )
    scores: Tensor = _HeadSum.apply(  # type: ignore[no-untyped-call]
        query, features.key[:, :keys], weight * features.scale
    )
    return scores.masked_fill_(~visible(features, positions)[..., :keys], float("-inf"))


class _Context(Protocol):
    """What autograd hands to both passes."""

    saved_tensors: tuple[Tensor, Tensor, Tensor]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class _HeadSum(torch.autograd.Function):
    """Σ_h w·ReLU(q·k) of [B, R, H, d], [B, T, d] and [B, R, H]: one head at a time, both ways.

    All at once of a single row, as in a decode step. Backward makes the products again, so that
    neither pass holds a [B, R, H, T] tensor.
    The installed library scales before the ReLU (V3.2) or after it (V4): the same function.
    """

    @staticmethod
    def forward(ctx: _Context, query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, weight)
        keys, total = key.transpose(1, 2), query.new_zeros(*query.shape[:2], key.shape[1])
        with torch.autocast(query.device.type, enabled=False):  # fp32 whatever the forward runs in
            if query.shape[1] == 1 and query.shape[2] * total.numel() <= _AT_ONCE:
                torch.bmm(weight, torch.bmm(query[:, 0], keys).relu_(), out=total)
                return total
            product = torch.empty_like(total)
            for q, w in zip(_by_head(query), _by_head(weight), strict=True):
                torch.bmm(q, keys, out=product).relu_()
                total.addcmul_(product, w.unsqueeze(-1))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, ...]:
        query, key, weight = ctx.saved_tensors
        keys, grad = key.transpose(1, 2), grad.contiguous()
        to_query, to_key, to_weight = (torch.zeros_like(t) for t in (query, key, weight))
        product = torch.empty_like(grad)
        for head, (q, w) in enumerate(zip(_by_head(query), _by_head(weight), strict=True)):
            torch.bmm(q, keys, out=product)
            # grad where the ReLU is open; d/d(q·k) is w times that
            open_ = torch.ops.aten.threshold_backward(grad, product, 0)
            seen = torch.bmm(open_, key)
            to_query[:, :, head] = seen * w.unsqueeze(-1)
            to_weight[:, :, head] = torch.linalg.vecdot(q, seen)
            to_key.baddbmm_(open_.transpose(1, 2), q * w.unsqueeze(-1))
        return to_query, to_key, to_weight


def _by_head(part: Tensor) -> Tensor:
    """[B, R, H, …] as [H, B, R, …], each head on its own in memory: products of it are faster."""
    return part.movedim(2, 0).contiguous()


def visible(features: IndexFeatures, positions: Tensor) -> Tensor:
    """Bool [B or 1, R, T]: which keys a row at each absolute position [B or 1, R] may read."""
    keys = torch.arange(features.key.shape[1], device=positions.device)
    seen = keys < keys_seen(features, positions).unsqueeze(-1)
    if features.key_valid is not None:
        seen = seen & features.key_valid[:, None, :]
    return seen


def key_ranking(features: IndexFeatures, scores: Tensor) -> Ranking:
    """Keys ranked by these scores [B, R, T] of all rows; a row ranks every key that it may read."""
    return Ranking(scores, visible(features, features.row_positions).expand(scores.shape))


def keys_seen(features: IndexFeatures, positions: Tensor) -> Tensor:
    """How many leading keys a row at each absolute position [B or 1, R] may read."""
    return (positions + 1) // features.ratio
