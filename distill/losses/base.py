"""What a loss is, what it may ask for, and what it is given.

A loss compares a student's index scores with its consumers:

    loss(scores, target, support) -> (sum, count)

`sum` adds up over query positions, chunks, micro-batches and processes; the sum over losses of
weight · sum is divided once, by the number of query positions in the step. `count` is what the
loss's own mean is over, for the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Needs:
    """What a loss asks for.

    Attributes:
        mean: the mean of the consumers' distributions, and Σ p log p.
        order: length m of each consumer's list of best keys; 0: no list. A loss with a list is
            called once for each consumer, and the mean over them counts.
    """

    mean: bool = False
    order: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """What the scores of some query positions are compared with. B sequences, R queries, T keys.

    Attributes:
        mean: p̄, the mean of the consumers' distributions [B, R, T], 0 outside the support; of
            no element where no loss needs it. Under a policy that ranks blocks of keys, T of these.
        information: per query the mean over the consumers of Σ p log p [B, R]; likewise.
        order: one consumer's m best keys by falling score, int64 [B, R, m]; m is 0 where the loss
            needs no list.
        positions: absolute position of each query, [R] for all sequences alike or [B, R].
        topk: keys that the model selects, or blocks that the policy takes.
        weight: of each query [B, R]: 1, or 0 where a sequence has too few.
    """

    mean: Tensor
    information: Tensor
    order: Tensor
    positions: Tensor
    topk: int
    weight: Tensor


class Loss(Protocol):
    """A loss with its options: an instance of the pydantic model that the registry holds."""

    def needs(self, topk: int) -> Needs:
        """What it asks for in a model that selects `topk` keys."""
        ...

    def __call__(self, scores: Tensor, target: Target, support: Tensor) -> tuple[Tensor, Tensor]:
        """(sum, count), two scalars.

        Args:
            scores: the student's index scores [B, R, T] at the model's own scale, with gradient;
                what stands outside the support is not to be read.
            target: what they are compared with.
            support: bool [B, R, T]: keys that a query may see.
        """
        ...
