"""The loss of one student on one batch, in chunks of rows, backward included.

The student's projections are made once. Scores, teacher and losses exist for one chunk of rows at
a time: each chunk runs backward at once into the projections' gradients, and one last backward goes
through the projections into the weights. No tensor is larger than [B, rows of a chunk, T].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from distill.losses import kl, listmle
from distill.objective.teachers import Combine, Teacher, narrow, target
from evalkit.dsa import IndexFeatures, index_scores


@dataclass(frozen=True, slots=True)
class Objective:
    """λ·KL + (1−λ)·ListMLE.

    Attributes:
        kl_share: λ.
        length: m of ListMLE.
        positions: weights of its positions [m].
        combine: how several consumers make one loss.
        chunk_elements: upper bound of a [B, rows, T] block.
    """

    kl_share: float = 1.0
    length: int = 0
    positions: Tensor | None = None
    combine: Combine = "mean"
    chunk_elements: int = 2**22


@dataclass(slots=True)
class Sums:
    """Losses as (sum, count); they add up over chunks, micro-batches and processes."""

    kl: float = 0.0
    listmle: float = 0.0
    rows: float = 0.0
    listed: float = 0.0

    def add(self, other: Sums) -> None:
        """Add in place."""
        self.kl += other.kl
        self.listmle += other.listmle
        self.rows += other.rows
        self.listed += other.listed

    def vector(self) -> list[float]:
        """The four numbers, to be reduced over processes."""
        return [self.kl, self.listmle, self.rows, self.listed]


def student_loss(
    features: IndexFeatures,
    teachers: Sequence[Teacher],
    objective: Objective,
    *,
    weight: Tensor,
    scale: float = 1.0,
) -> Sums:
    """Losses of some rows; adds `scale` times the gradient of their sum to the weights.

    Args:
        features: of the student at these rows, attached to its weights.
        teachers: one per consumer, at the same rows.
        objective: what to compare by.
        weight: of each row [B, R].
        scale: of the gradient: 1 / global number of rows, or 1 to divide later.
    """
    parts = (features.query, features.key, features.weight)
    leaves = [part.detach().requires_grad_(part.requires_grad) for part in parts]
    leaf = replace(features, query=leaves[0], key=leaves[1], weight=leaves[2])
    sums = Sums()
    for part, keys in chunks(leaf, objective.chunk_elements):
        value = _chunk(narrow(leaf, part, keys), teachers, part, objective, weight[:, part], sums)
        if value.requires_grad:
            (value * scale).backward()  # type: ignore[no-untyped-call]
    pairs = [(p, q.grad) for p, q in zip(parts, leaves, strict=True) if q.grad is not None]
    if pairs:
        torch.autograd.backward([p for p, _ in pairs], [g for _, g in pairs])
    return sums


def _chunk(
    features: IndexFeatures,
    teachers: Sequence[Teacher],
    part: slice,
    objective: Objective,
    weight: Tensor,
    sums: Sums,
) -> Tensor:
    scores = index_scores(features, chunk_elements=2**62)
    support = scores.detach() > float("-inf")
    lists = objective.kl_share < 1
    with torch.no_grad():
        goal = target(
            teachers, part, support,
            combine=objective.combine, length=objective.length if lists else 0,
        )  # fmt: skip
    value, count = kl(goal.mean, scores, support, information=goal.information, weight=weight)
    sums.kl += value.item()
    sums.rows += count.item()
    result = objective.kl_share * value
    for order in goal.orders:
        value, count = listmle(order, scores, support, positions=objective.positions, weight=weight)
        sums.listmle += value.item() / len(goal.orders)
        sums.listed += count.item() / len(goal.orders)
        result = result + (1 - objective.kl_share) * value / len(goal.orders)
    return result


def chunks(features: IndexFeatures, elements: int) -> Iterator[tuple[slice, int]]:
    """(rows, how many leading keys they see) so that a [B, rows, keys] block keeps in bounds.

    Rows must come in rising order; then each chunk looks at no more keys than its last row sees.
    """
    batch, count = features.query.shape[:2]
    last = features.positions.reshape(-1, count).amax(0)
    seen = ((last + 1) // features.ratio).clamp(1, features.key.shape[1]).tolist()
    start = 0
    while start < count:
        end = start + 1
        while end < count and batch * (end + 1 - start) * seen[end] <= elements:
            end += 1
        yield slice(start, end), seen[end - 1]
        start = end
