"""KL of next-token predictions from the original model's to an arm's, position by position.

    D_t = Σ_v p_t(v) · (log p_t(v) − log q_t(v)),   p original, q arm

measured on plain text. The original's final hidden states are kept for the positions compared;
vocabulary-sized tensors exist for one chunk of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.errors import require_finite
from distill.models.causal_lm import CausalLM
from distill.models.forward import final_hidden_states
from distill.models.student import Students
from distill.objective.plan import DistillPlan
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.selection import SelectionPolicy

CHUNK_LOGITS = 2**24

Rows = Callable[[Batch], Tensor | None]
Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Reference:
    """The original model on fixed batches.

    Attributes:
        batches: the text.
        hidden: final hidden states at valid positions, per batch [positions, hidden].
        native: the schedule of the original.
    """

    batches: tuple[Batch, ...]
    hidden: tuple[Tensor, ...]
    native: ReuseSchedule

    def divergence(
        self,
        model: CausalLM,
        schedule: ReuseSchedule,
        decode_rows: Rows = lambda _: None,
        *,
        policy: SelectionPolicy | None = None,
        given: Callable[[Batch], Mapping[int, Tensor]] = lambda _: {},
    ) -> Tensor:
        """D at every valid position of all batches, fp32 [positions], in order.

        Whatever stands in the model (students) is what is measured.

        Args:
            model: what diverges.
            schedule: that it runs under.
            decode_rows: see `final_hidden_states`; of a batch.
            policy: likewise.
            given: likewise; of a batch.
        """
        parts, head = [], model.get_output_embeddings()
        for batch, before in zip(self.batches, self.hidden, strict=True):
            rows, chosen = decode_rows(batch), given(batch)
            hidden = final_hidden_states(
                model, schedule, batch, policy=policy, decode_rows=rows, given=chosen
            )
            parts.append(divergence(head, before.to(hidden), hidden[batch.valid]))
        return torch.cat(parts)


def reference(model: CausalLM, native: ReuseSchedule, batches: Sequence[Batch]) -> Reference:
    """Run the original model over some batches and keep what its predictions are made of."""
    hidden = (final_hidden_states(model, native, b)[b.valid].cpu() for b in batches)
    return Reference(tuple(batches), tuple(hidden), native)


@torch.no_grad()
def divergence(head: Head, before: Tensor, after: Tensor) -> Tensor:
    """KL of next-token distributions of two sets of final hidden states [N, hidden]: fp32 [N].

    `head` makes logits of them.

    Raises:
        NonFiniteError: a divergence is NaN or infinite.
    """
    size = max(1, CHUNK_LOGITS // head(before[:1]).shape[-1])
    parts = []
    for p, q in zip(torch.split(before, size), torch.split(after, size), strict=True):
        log_p = head(p).float().log_softmax(-1)
        log_q = head(q).float().log_softmax(-1)
        parts.append((log_p.exp() * (log_p - log_q)).sum(-1).clamp(min=0).cpu())
    result = torch.cat(parts)
    require_finite(result, "KL of final logits")
    return result


def tail_threshold(divergence: Tensor, tail: float) -> Tensor:
    """Smallest divergence among the `tail` share of positions where it is largest."""
    return divergence.topk(max(1, round(tail * len(divergence)))).values[-1]


@dataclass(frozen=True, slots=True)
class Criterion:
    """A number for a candidate, from the divergence at every position.

    Attributes:
        weight: of each position; sums to 1.
    """

    weight: Tensor

    @classmethod
    def of(cls, undistilled: Tensor, tail: float, gain: Tensor | None = None) -> Criterion:
        """Count the `tail` share of positions where the undistilled arm diverges most.

        Each counts by its `gain` (`distill.validation.long_range`); evenly without one, and where
        no position has any.
        """
        counted = (undistilled >= tail_threshold(undistilled, tail)).float()
        weight = counted if gain is None else counted * gain
        if weight.sum() <= 0:
            weight = counted
        return cls(weight / weight.sum())

    def __call__(self, divergence: Tensor) -> float:
        """Weighted mean."""
        return float((self.weight * divergence).sum())


def arm_divergence(
    model: CausalLM, students: Students, plan: DistillPlan, reference: Reference
) -> Tensor:
    """The arm with its students against the original, at every position of the reference."""
    with students.acting(model):
        return reference.divergence(model, plan.schedule, plan.decode_rows, policy=plan.policy)
