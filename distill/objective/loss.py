"""The losses of one student on one batch, in chunks of query positions, backward included.

The student's projections are made once. Scores, targets and losses exist for one chunk of queries
at a time: each chunk runs backward at once into the projections' gradients, and one last backward
goes through the projections into the weights. No tensor is larger than [B, queries of a chunk, T].
Under a policy that ranks more than once (`distill.objective.rankings`) losses add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from distill.errors import NonFiniteError, require_finite
from distill.losses.base import Loss, Needs, Target
from distill.objective.rankings import RankedTeacher, rankings
from distill.objective.teachers import (
    Combine,
    ConsumerTargets,
    Teacher,
    consumer_targets,
    slice_queries,
)
from evalkit.config.selection import Selection
from evalkit.core.plugins import OURS, running
from evalkit.dsa import IndexFeatures
from evalkit.dsa.selection import Ranking


@dataclass(frozen=True, slots=True)
class WeightedLoss:
    """A loss in the sum.

    Attributes:
        name: in the log.
        weight: in the sum.
        loss: what is called.
        package: that it comes from; an error in it names the package.
    """

    name: str
    weight: float
    loss: Loss
    package: str = OURS

    def needs(self, topk: int) -> Needs:
        """What it asks for in a model that selects `topk` keys."""
        with running(self.package):
            return self.loss.needs(topk)

    def value(self, scores: Tensor, target: Target, support: Tensor) -> tuple[Tensor, float, float]:
        """The sum with its gradient; sum and count as numbers."""
        with running(self.package):
            value, count = self.loss(scores, target, support)
            return value, value.item(), count.item()


@dataclass(frozen=True, slots=True)
class Objective:
    """Σ weight · loss.

    Attributes:
        losses: of distinct names.
        topk: keys that the model selects.
        combine: how several consumers make one loss.
        chunk_elements: upper bound of a [B, queries, T] block.
        policy: how the student selects; None: by its index scores.
    """

    losses: tuple[WeightedLoss, ...]
    topk: int
    combine: Combine = "mean"
    chunk_elements: int = 2**22
    policy: Selection | None = None

    def trained(self) -> Objective:
        """Without the losses of weight 0, which are measured only."""
        return replace(self, losses=tuple(entry for entry in self.losses if entry.weight > 0))

    def needs(self, topk: int) -> Needs:
        """Of all losses together, where `topk` keys or blocks are taken."""
        each = [entry.needs(topk) for entry in self.losses]
        return Needs(any(n.mean for n in each), max((n.order for n in each), default=0))


@dataclass(slots=True)
class WeightedMean:
    """A mean in the making: Σ weight · value, and Σ weight."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, total: float, weight: float) -> None:
        """Add to both sums."""
        self.total += total
        self.weight += weight

    @property
    def mean(self) -> float:
        """NaN where nothing was counted."""
        return self.total / self.weight if self.weight else math.nan


@dataclass(slots=True)
class LossSums:
    """Losses as sums that add up over chunks, micro-batches and processes.

    Attributes:
        queries: weight of the query positions that see any key; gradients are divided by it.
        losses: by name; under a policy that ranks more than once, each ranking counts.
    """

    queries: float = 0.0
    losses: dict[str, WeightedMean] = field(default_factory=dict)

    def add(self, other: LossSums) -> None:
        """Add in place."""
        self.queries += other.queries
        for name, sums in other.losses.items():
            self.of(name).add(sums.total, sums.weight)

    def of(self, name: str) -> WeightedMean:
        """The sums of one loss."""
        return self.losses.setdefault(name, WeightedMean())

    def mean(self, name: str) -> float | None:
        """Mean of a loss; None where nothing was counted."""
        sums = self.losses.get(name)
        return sums.mean if sums is not None and sums.weight else None

    def means(self, names: Sequence[str]) -> dict[str, float | None]:
        """Means of some losses."""
        return {name: self.mean(name) for name in names}

    def vector(self, names: Sequence[str]) -> list[float]:
        """All sums in a fixed order, to be reduced over processes; `from_vector` is the inverse."""
        means = [self.losses.get(name, WeightedMean()) for name in names]
        return [self.queries, *(s for o in means for s in (o.total, o.weight))]

    @classmethod
    def from_vector(cls, names: Sequence[str], sums: Sequence[float]) -> LossSums:
        """The sums of `vector`."""
        pairs = zip(sums[1::2], sums[2::2], strict=True)
        return cls(sums[0], {n: WeightedMean(*pair) for n, pair in zip(names, pairs, strict=True)})

    def check_finite(self) -> None:
        """Refuse to go on where a loss is NaN or infinite.

        Raises:
            NonFiniteError: the message names the loss.
        """
        for name, sums in self.losses.items():
            if not math.isfinite(sums.total):
                value = "NaN" if math.isnan(sums.total) else "infinite"
                raise NonFiniteError(
                    f"the loss {name} is {value}; lower train.lr, or look at the data"
                )


def student_loss(
    features: IndexFeatures,
    teachers: Sequence[Teacher],
    objective: Objective,
    *,
    weight: Tensor,
    scale: float = 1.0,
) -> LossSums:
    """Losses at some query positions; adds `scale` times the gradient of their sum to the weights.

    Args:
        features: of the student at these positions, attached to its weights.
        teachers: one per consumer, at the same positions.
        objective: what to compare by.
        weight: of each query [B, R].
        scale: of the gradient: 1 / global number of queries, or 1 to divide later.

    Raises:
        NonFiniteError: scores of the student, or of a teacher, are NaN or infinite.
    """
    parts = (features.query, features.key, features.weight)
    leaves = [part.detach().requires_grad_(part.requires_grad) for part in parts]
    leaf = replace(features, query=leaves[0], key=leaves[1], weight=leaves[2])
    sums = LossSums()
    for part, keys in chunks(leaf, objective.chunk_elements):
        chunk = slice_queries(leaf, part, keys)
        value = _chunk(chunk, teachers, part, objective, weight[:, part], sums)
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
    sums: LossSums,
) -> Tensor:
    """Σ weight · loss of one chunk; its sums are added to `sums`."""
    ranked = rankings(features, objective.policy)
    sums.queries += (weight * ranked[-1].among.any(-1)).sum().item()
    result = features.query.new_zeros(())
    for ranking in ranked:
        asked: Sequence[Teacher] = teachers
        if objective.policy is not None:
            asked = [RankedTeacher(teacher, ranking) for teacher in teachers]
        result = result + _compared(ranking, asked, part, objective, weight, sums, features)
    return result


def _compared(
    ranking: Ranking,
    teachers: Sequence[Teacher],
    part: slice,
    objective: Objective,
    weight: Tensor,
    sums: LossSums,
    features: IndexFeatures,
) -> Tensor:
    """The same of one ranking."""
    # What a query may see follows from positions alone: a score that is NaN stays a visible fault.
    scores, support = ranking.scores, ranking.among
    topk = ranking.taken or objective.topk
    require_finite(scores.detach().masked_fill(~support, 0), "index scores of the student")
    with torch.no_grad():
        needs = objective.needs(topk)
        consumers = consumer_targets(teachers, part, support, needs, objective.combine)
    target = Target(
        mean=consumers.mean,
        information=consumers.information,
        order=torch.empty(0, dtype=torch.long, device=scores.device),
        positions=features.positions,
        topk=topk,
        weight=weight,
    )
    result = scores.new_zeros(())
    for entry in objective.losses:
        running = sums.of(entry.name)
        calls = _targets(target, consumers, entry.needs(topk))
        for each in calls:
            value, total, count = entry.value(scores, each, support)
            running.add(total / len(calls), count / len(calls))
            result = result + entry.weight * value / len(calls)
    return result


def _targets(target: Target, consumers: ConsumerTargets, needs: Needs) -> list[Target]:
    """One target per consumer's list for a loss that needs lists, else one in all."""
    if not needs.order:
        return [target]
    return [replace(target, order=order[..., : needs.order]) for order in consumers.orders]


def chunks(features: IndexFeatures, elements: int) -> Iterator[tuple[slice, int]]:
    """(queries, how many leading keys they see) so that a [B, queries, keys] block keeps in bounds.

    Positions must come in rising order; then each chunk looks at no more keys than its last query
    sees.
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


def merge_losses(into: dict[int, LossSums], other: Mapping[int, LossSums]) -> None:
    """Add sums by layer in place."""
    for layer, sums in other.items():
        into.setdefault(layer, LossSums()).add(sums)
