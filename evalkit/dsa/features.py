"""What an indexer scores with: queries, keys, head weights; linear in the length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from evalkit.dsa.families.base import Rope

Rotation = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class IndexFeatures:
    """Projections of one indexer over one sequence, in fp32.

    Attributes:
        query: rotated index queries [B, S, H, d].
        key: rotated index keys, shared by the heads [B, T, d].
        weight: head weights, scaled by H^-1/2, without activation [B, S, H].
        scale: d^-1/2.
        positions: absolute position of each query row, [S] for all sequences alike or [B, S].
        ratio: tokens per key: key t is visible from position p when t < (p + 1) // ratio.
        key_valid: [B, T], False at padding; None when there is none.
    """

    query: Tensor
    key: Tensor
    weight: Tensor
    scale: float
    positions: Tensor
    ratio: int = 1
    key_valid: Tensor | None = None

    @property
    def row_positions(self) -> Tensor:
        """`positions` as [B or 1, S]."""
        return self.positions if self.positions.dim() == 2 else self.positions[None]


def rotate_half_split(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """NeoX RoPE: channel i is paired with channel i + d/2; cos and sin repeat their halves."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def rotate_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GPT-J RoPE: channels 2i and 2i+1 are a pair; the result is laid out de-interleaved."""
    half = cos.shape[-1] // 2
    cos, sin = cos[..., :half], sin[..., :half]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1)


def rotate_in_place(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GPT-J RoPE laid out in place, in fp32; cos and sin hold one entry per pair (maybe twice)."""
    pairs = x.shape[-1] // 2
    cos, sin = (table[..., :pairs].repeat_interleave(2, dim=-1) for table in (cos, sin))
    x32 = x.float()
    turned = torch.stack((-x32[..., 1::2], x32[..., 0::2]), dim=-1).flatten(-2)
    return (x32 * cos + turned * sin).to(x.dtype)


ROTATIONS: Mapping[Rope, Rotation] = {
    "half_split": rotate_half_split,
    "interleaved": rotate_interleaved,
    "interleaved_in_place": rotate_in_place,
}


def rotate_slice(
    x: Tensor,
    rope: tuple[Tensor, Tensor],
    width: int,
    side: Literal["first", "last"],
    rotate: Rotation,
) -> Tensor:
    """Rotate the first or last `width` channels of [B, S, heads, d]."""
    cos, sin = (table.unsqueeze(2) for table in rope)
    if side == "first":
        return torch.cat([rotate(x[..., :width], cos, sin), x[..., width:]], dim=-1)
    return torch.cat([x[..., :-width], rotate(x[..., -width:], cos, sin)], dim=-1)


def take_rows(part: Tensor, rows: Tensor) -> Tensor:
    """Rows [R], or [B, R], of a [B or 1, S, ...] tensor."""
    if rows.dim() == 1:
        return part[:, rows]
    index = rows.view(*rows.shape, *(1,) * (part.dim() - 2))
    return part.expand(rows.shape[0], *part.shape[1:]).gather(
        1, index.expand(*rows.shape, *part.shape[2:])
    )


def at_rows(features: IndexFeatures, rows: Tensor) -> IndexFeatures:
    """Features of some rows only, [R] or [B, R]; all keys stay."""
    return replace(
        features,
        query=take_rows(features.query, rows),
        weight=take_rows(features.weight, rows),
        positions=take_rows(features.row_positions, rows),
    )


def without_padding(features: IndexFeatures) -> tuple[IndexFeatures, Tensor | None]:
    """Features whose sequences begin at key 0, and by how many keys each was moved [B, 1, 1].

    None where nothing is padded in front.
    """
    valid = features.key_valid
    if valid is None:
        return features, None
    pad = (valid.cumsum(1) == 0).sum(1, keepdim=True)
    if not bool(pad.any()):
        return features, None
    length = features.key.shape[1]
    index = torch.arange(length, device=pad.device) + pad
    kept, index = index < length, index.clamp(max=length - 1)
    moved = replace(
        features,
        key=features.key.gather(1, index.unsqueeze(-1).expand_as(features.key)),
        key_valid=valid.gather(1, index) & kept,
        positions=features.positions - pad * features.ratio,  # below 0 in padding: it sees nothing
    )
    return moved, pad.unsqueeze(-1)
