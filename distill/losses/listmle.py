"""ListMLE: the top-m Plackett–Luce likelihood of the teacher's order.

    L_t = Σ_{i<m} a_i · [ logsumexp_{j≥i} s[y_j] − s[y_i] ] / Σ_{i<m} a_i

y lists the keys of a query by falling teacher score, s are the student's scores (Xia et al., ICML
2008). Every denominator runs over all remaining keys, those beyond the m-th included: without the
tail no gradient would reach a key outside the list, and the border of the selection could not
move. a_i weighs positions: all alike, a band around the top-k border, or falling with the rank.

The mean over the weighted positions makes the number comparable over m; MLI (arXiv 2611.03768)
does not print its normalisation.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from distill.losses.base import Needs, Target

Weighting = Literal["uniform", "discount", "band"]


class ListMLE(BaseModel):
    """``kind = "listmle"``: likelihood of each consumer's order of its best keys.

    Attributes:
        list_length: m, in multiples of the model's index_topk.
        positions: weights of the list's positions, see `position_weights`.
        band: half width of the band around the top-k border, in multiples of index_topk.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    list_length: float = Field(default=2.0, gt=0)
    positions: Weighting = "uniform"
    band: float = Field(default=0.5, gt=0)

    def needs(self, topk: int) -> Needs:
        """The order of each consumer's m best keys."""
        return Needs(order=max(1, round(self.list_length * topk)))

    def __call__(self, scores: Tensor, target: Target, support: Tensor) -> tuple[Tensor, Tensor]:
        """See `distill.losses.base.Loss`."""
        band = max(1, round(self.band * target.topk))
        length = self.needs(target.topk).order
        positions = position_weights(length, self.positions, topk=target.topk, band=band)
        return listmle(target.order, scores, support, positions=positions, weight=target.weight)


def position_weights(
    length: int, kind: Weighting = "uniform", *, topk: int = 0, band: int = 0
) -> Tensor:
    """a_i of the first `length` positions, fp32 [length].

    Args:
        length: m.
        kind: ``uniform``; ``discount`` 1/log2(i+2), as in DCG; ``band`` 1 for topk−band ≤ i <
            topk+band and 0 elsewhere.
        topk: where the border lies.
        band: half width of the band.
    """
    place = torch.arange(length)
    if kind == "discount":
        return 1.0 / torch.log2(place + 2.0)
    if kind == "band":
        return ((place >= topk - band) & (place < topk + band)).float()
    return torch.ones(length)


def list_order(teacher: Tensor, support: Tensor, length: int) -> Tensor:
    """The first `length` keys of each query by falling teacher score; ties go to the lower index.

    Args:
        teacher: scores [..., T].
        support: bool, broadcastable to [..., T].
        length: m, at most T.

    Returns:
        int64 [..., min(length, T)]. Where fewer keys are visible, invisible ones fill it up.
    """
    length = min(length, teacher.shape[-1])
    values = teacher.masked_fill(~support.expand(teacher.shape), float("-inf"))
    border = values.topk(length, dim=-1).values[..., -1:]
    above, tied = values > border, values == border
    room = length - above.sum(-1, keepdim=True)
    chosen = above | (tied & (tied.cumsum(-1) <= room))
    index = chosen.nonzero()[:, -1].view(*values.shape[:-1], length)
    order = values.gather(-1, index).sort(dim=-1, descending=True, stable=True).indices
    return index.gather(-1, order)


def listmle(
    order: Tensor,
    scores: Tensor,
    support: Tensor,
    *,
    positions: Tensor | None = None,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum over queries of the negative top-m log-likelihood, and how many it holds.

    Args:
        order: from `list_order` [..., m].
        scores: the student's index scores [..., T].
        support: bool, broadcastable to [..., T].
        positions: a_i [m or more]; default all 1. Only positions that a query has count.
        weight: of each query [...]; default 1.

    Returns:
        (sum, count); queries in which no weighted position is visible are in neither.
    """
    support = support.expand(scores.shape)
    precision = torch.promote_types(scores.dtype, torch.float32)
    low = torch.finfo(scores.dtype).min
    masked = scores.to(precision).masked_fill(~support, low)
    listed = masked.gather(-1, order)
    tail = torch.logsumexp(masked.scatter(-1, order, low), dim=-1, keepdim=True)
    within = torch.flip(torch.logcumsumexp(torch.flip(listed, [-1]), dim=-1), [-1])
    terms = torch.logaddexp(within, tail) - listed

    share = support.gather(-1, order).to(precision)
    if positions is not None:
        share = share * positions[: share.shape[-1]].to(share)  # T may be less than m
    total = share.sum(-1)
    real = total > 0
    rows = (terms.masked_fill(share == 0, 0.0) * share).sum(-1) / total.clamp(min=1e-30)
    shares = real.to(precision) if weight is None else weight.to(precision) * real
    return (rows * shares).sum(), shares.sum()
