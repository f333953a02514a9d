"""Teachers of a student: the distributions of the layers that a full layer serves.

A teacher stands for one consumer, at some query positions of a batch:

* `IndexTeacher`: the original model's frozen indexer at the consumer (MLI, arXiv 2611.03768);
* `AttentionTeacher`: the attention that the consumer really paid, summed over heads (IndexCache,
  arXiv 2603.12201). Scores are its logarithms, so that their softmax is the distribution.

Teachers hold projections, linear in the length; their scores exist for one chunk of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from distill.errors import require_finite
from distill.losses.base import Needs
from distill.losses.kl import self_information
from distill.losses.listmle import list_order
from distill.models.causal_lm import CausalLM
from evalkit.dsa import IndexerCall, IndexFeatures, index_features, index_scores
from evalkit.dsa.features import at_rows, take_rows

Combine = Literal["mean", "mixture"]


class Teacher(Protocol):
    """Scores of one consumer at the query positions of a batch."""

    @property
    def keys(self) -> int:
        """T: keys that a query can be scored against."""
        ...

    def scores(self, part: slice, keys: int) -> Tensor:
        """fp32 [B, queries of the part, keys], -inf where nothing is to be read."""
        ...


class BatchTeacher(Teacher, Protocol):
    """A teacher that can be asked at fewer positions."""

    def at(self, rows: Tensor) -> BatchTeacher:
        """The same at some of its query positions, by their places [B, R]."""
        ...


@dataclass(frozen=True, slots=True)
class IndexTeacher:
    """Index scores of a frozen indexer, its queries already taken at the positions."""

    features: IndexFeatures

    @property
    def keys(self) -> int:
        """T."""
        return self.features.key.shape[1]

    def scores(self, part: slice, keys: int) -> Tensor:
        """See `Teacher`."""
        return index_scores(slice_queries(self.features, part, keys))

    def at(self, rows: Tensor) -> IndexTeacher:
        """See `BatchTeacher`."""
        return IndexTeacher(at_rows(self.features, rows))


@dataclass(frozen=True, slots=True)
class AttentionTeacher:
    """Head-summed attention of the queries, as logarithms [B, R, T]; see `attention_share`."""

    log_share: Tensor

    @property
    def keys(self) -> int:
        """T."""
        return self.log_share.shape[-1]

    def scores(self, part: slice, keys: int) -> Tensor:
        """See `Teacher`."""
        return self.log_share[:, part, :keys]

    def at(self, rows: Tensor) -> AttentionTeacher:
        """See `BatchTeacher`."""
        return AttentionTeacher(take_rows(self.log_share, rows))


def index_teacher(
    model: CausalLM, indexer: nn.Module, call: IndexerCall, positions: Tensor
) -> IndexTeacher:
    """The teacher of a layer's own indexer at query positions [R] or [B, R].

    Raises:
        NonFiniteError: what it scores with is NaN or infinite.
    """
    features = index_features(model, indexer, call, positions)
    require_finite_features(features)
    return IndexTeacher(features)


def require_finite_features(features: IndexFeatures) -> None:
    """Refuse NaN and infinite projections of an indexer.

    Raises:
        NonFiniteError: names which of them.
    """
    for name in ("query", "key", "weight"):
        require_finite(getattr(features, name), f"index {name}")


def slice_queries(features: IndexFeatures, part: slice, keys: int) -> IndexFeatures:
    """Some consecutive queries of some features, against their first keys."""
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
class ConsumerTargets:
    """What one chunk of queries is compared with; the consumers' scores are gone.

    Attributes:
        mean: p̄ [B, R, T], the mean of the consumers' distributions; empty where it is not needed.
        information: per query, the mean of Σ p log p over consumers, or that of the mixture [B, R].
        orders: top-m lists [B, R, m], one per consumer (one in all for the mixture).
    """

    mean: Tensor
    information: Tensor
    orders: tuple[Tensor, ...]


def consumer_targets(
    teachers: Sequence[Teacher],
    part: slice,
    support: Tensor,
    needs: Needs,
    combine: Combine = "mean",
) -> ConsumerTargets:
    """Reduce the consumers of some queries to what the losses need, one consumer at a time.

    Args:
        teachers: one per consumer; a consumer named twice counts twice.
        part: the queries.
        support: bool [B, R, T] of the student: later keys are not looked at.
        needs: of all losses together.
        combine: ``mean`` of the consumers' losses, or the loss to their ``mixture``.

    Raises:
        NonFiniteError: a score is NaN or infinite; -inf alone says "not visible".
    """
    if not teachers:
        raise ValueError("no consumers")
    mixture = combine == "mixture"
    mean = information = torch.zeros((), device=support.device)
    orders = []
    for teacher in teachers:
        scores = teacher.scores(part, support.shape[-1])
        seen = scores.masked_fill(torch.isneginf(scores), 0)
        require_finite(seen, "index scores of a layer it serves")
        if needs.mean or mixture:
            share = _softmax(scores) / len(teachers)
            information = information + self_information(share * len(teachers)) / len(teachers)
            mean = share if mean.dim() == 0 else mean.add_(share)
        if needs.order and not mixture:
            orders.append(list_order(scores, support, needs.order))
    if mixture:
        information = self_information(mean)
        if needs.order:
            orders.append(list_order(mean, support, needs.order))
    return ConsumerTargets(mean, information, tuple(orders))


def _softmax(scores: Tensor) -> Tensor:
    """Softmax where -inf is nothing; where everything is -inf, all 0."""
    seen = ~torch.isneginf(scores)
    return (
        scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~seen, 0)
    )
