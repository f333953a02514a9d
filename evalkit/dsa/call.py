"""One indexer call: its arguments under our names, and what features take from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from evalkit.dsa.features import take_rows

Rotation = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class IndexerCall:
    """The arguments of one indexer call, under our names.

    Attributes:
        hidden: attention-block input, after the input norm [B, S, hidden].
        q_resid: normalised MLA query latent [B, S, q_lora_rank]; None where queries come from
            `hidden`.
        rope: (cos, sin) of the queries [B or 1, S, rope_dim]; None where the indexer makes its own.
        mask: causal and padding mask [B, S, T], bool or additive; None where none is passed.
        position_ids: [B or 1, S]; None where the family does not pass them.
        cache: the model's cache, or None.
        layer_id: absolute layer id.
    """

    hidden: Tensor
    q_resid: Tensor | None
    rope: tuple[Tensor, Tensor] | None
    mask: Tensor | None
    position_ids: Tensor | None
    cache: Any
    layer_id: int


def rows_of(call: IndexerCall, rows: Tensor | None) -> IndexerCall:
    """What the query side reads of a call: some rows [R] or [B, R] of it; no cache, no mask."""
    if rows is None:
        return call

    def take(part: Tensor) -> Tensor:
        return take_rows(part, rows)

    return replace(
        call,
        hidden=take(call.hidden),
        q_resid=None if call.q_resid is None else take(call.q_resid),
        rope=None if call.rope is None else (take(call.rope[0]), take(call.rope[1])),
        position_ids=None if call.position_ids is None else take(call.position_ids),
        mask=None,
        cache=None,
    )


def rotated(
    x: Tensor,
    rope: tuple[Tensor, Tensor],
    width: int,
    rope_slice: str,
    rotate: Rotation,
) -> Tensor:
    """Rotate the first or last `width` channels of [B, S, heads, d]."""
    cos, sin = (table.unsqueeze(2) for table in rope)
    if rope_slice == "first":
        return torch.cat([rotate(x[..., :width], cos, sin), x[..., width:]], dim=-1)
    return torch.cat([x[..., :-width], rotate(x[..., -width:], cos, sin)], dim=-1)
