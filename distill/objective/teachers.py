"""What the student of a full layer is to imitate: the distributions of the layers it serves.

A teacher speaks for one consumer, on some rows of a batch:

* `IndexTeacher`: the original model's frozen indexer at the consumer (MLI, arXiv 2611.03768);
* `AttentionTeacher`: the attention that the consumer really paid, summed over heads (IndexCache,
  arXiv 2603.12201). Scores are its logarithms, so that their softmax is the distribution.

Teachers hold projections, linear in the length; their scores exist for one chunk of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from distill.losses import list_order, self_information
from evalkit.dsa import IndexerCall, IndexFeatures, index_features, index_scores

Combine = Literal["mean", "mixture"]


class Teacher(Protocol):
    """Scores of one consumer for the rows of a batch."""

    @property
    def keys(self) -> int:
        """T: keys that a row can be scored against."""
        ...

    def scores(self, part: slice, keys: int) -> Tensor:
        """fp32 [B, rows of the part, keys], -inf where nothing is to be read."""
        ...


@dataclass(frozen=True, slots=True)
class IndexTeacher:
    """Index scores of a frozen indexer, its queries already taken at the rows."""

    features: IndexFeatures

    @property
    def keys(self) -> int:
        """T."""
        return self.features.key.shape[1]

    def scores(self, part: slice, keys: int) -> Tensor:
        """See `Teacher`."""
        return index_scores(narrow(self.features, part, keys))


@dataclass(frozen=True, slots=True)
class AttentionTeacher:
    """Head-summed attention of the rows, as logarithms [B, R, T]; see `attention_share`."""

    log_share: Tensor

    @property
    def keys(self) -> int:
        """T."""
        return self.log_share.shape[-1]

    def scores(self, part: slice, keys: int) -> Tensor:
        """See `Teacher`."""
        return self.log_share[:, part, :keys]


def index_teacher(model: Any, indexer: nn.Module, call: IndexerCall, rows: Tensor) -> IndexTeacher:
    """The teacher of a layer's own indexer at rows [R] or [B, R]."""
    return IndexTeacher(index_features(model, indexer, call, rows))


def narrow(features: IndexFeatures, part: slice, keys: int) -> IndexFeatures:
    """Some consecutive rows of some features, against their first keys."""
    valid = features.key_valid
    return replace(
        features,
        query=features.query[:, part],
        weight=features.weight[:, part],
        positions=features.positions[..., part],
        key=features.key[:, :keys],
        key_valid=None if valid is None else valid[:, :keys],
    )


@dataclass(frozen=True, slots=True)
class Target:
    """What one chunk of rows is compared with; the consumers' scores are gone.

    Attributes:
        mean: p̄ [B, R, T], the mean of the consumers' distributions.
        information: per row, the mean over consumers of Σ p log p (or that of p̄) [B, R].
        orders: top-m lists [B, R, m], one per consumer (one in all for the mixture).
    """

    mean: Tensor
    information: Tensor
    orders: tuple[Tensor, ...]


def target(
    teachers: Sequence[Teacher],
    part: slice,
    support: Tensor,
    *,
    combine: Combine = "mean",
    length: int = 0,
) -> Target:
    """Reduce the consumers of some rows to what the losses need, one consumer at a time.

    Args:
        teachers: one per consumer; a consumer named twice counts twice.
        part: the rows.
        support: bool [B, R, T] of the student: later keys are not looked at.
        combine: ``mean`` of the consumers' losses, or the loss to their ``mixture``.
        length: m of the lists; 0 makes none.
    """
    keys = support.shape[-1]
    mean: Tensor | None = None
    information: Tensor | None = None
    orders = []
    for teacher in teachers:
        scores = teacher.scores(part, keys)
        share = _softmax(scores) / len(teachers)
        own = self_information(share * len(teachers)) / len(teachers)
        mean = share if mean is None else mean.add_(share)
        information = own if information is None else information + own
        if length and combine == "mean":
            orders.append(list_order(scores, support, length))
    if mean is None or information is None:
        raise ValueError("no consumers")
    if combine == "mixture":
        information = self_information(mean)
        if length:
            orders.append(list_order(mean, support, length))
    return Target(mean, information, tuple(orders))


def _softmax(scores: Tensor) -> Tensor:
    """Softmax where -inf is nothing; an all-masked row is all 0."""
    seen = scores > float("-inf")
    return (
        scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~seen, 0)
    )
