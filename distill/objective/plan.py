"""What stays the same over all batches of a distillation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from distill.config.train import DistillConfig
from distill.data.batch import Batch
from distill.losses import position_weights
from distill.objective.loss import Objective
from distill.objective.query_sampling import (
    RowGroup,
    boundaries,
    decode_mask,
    row_groups,
    two_phases,
)
from distill.objective.teacher_assignment import Kind, Lessons
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.families.sites import indexer_sites


@dataclass(frozen=True, slots=True)
class Plan:
    """What stays the same over all batches.

    Attributes:
        schedule: the arm.
        lessons: who teaches whom.
        kind: of teacher.
        objective: the loss.
        on_policy: hidden states from the arm's forward, with the students in it.
        first: first row that has more visible keys than it may select.
        rows: query rows per sequence.
        decode_share: share of the rows behind the prompt, where phases differ.
        seed: of all draws.
    """

    schedule: ReuseSchedule
    lessons: Lessons
    kind: Kind
    objective: Objective
    on_policy: bool
    first: int
    rows: int
    decode_share: float
    seed: int

    def prompts(self, batch: Batch, draws: Sequence[int]) -> Tensor | None:
        """Prompt lengths [B] where the phases differ, else None."""
        if not two_phases(self.schedule):
            return None
        return boundaries(batch.valid, draws, first=self.first, seed=self.seed)

    def groups(
        self, batch: Batch, draws: Sequence[int], prompts: Tensor | None, count: int | None = None
    ) -> list[RowGroup]:
        """The drawn rows of a batch."""
        return row_groups(
            batch.valid, draws, first=self.first, count=count or self.rows, seed=self.seed,
            prompts=prompts, decode_share=self.decode_share,
        )  # fmt: skip


def make_plan(
    model: Any, schedule: ReuseSchedule, layers: Sequence[int], config: DistillConfig
) -> Plan:
    """The plan of a recipe for one model and the layers that train."""
    where = indexer_sites(model)
    indexer: Any = where.owners[0].indexer
    topk = int(indexer.index_topk)
    loss = config.loss
    length = max(1, round(loss.list_length * topk))
    band = max(1, round(loss.band * topk))
    return Plan(
        schedule=schedule,
        lessons=Lessons.of(model, schedule, layers),
        kind=config.teacher.kind,
        objective=Objective(
            kl_share=loss.kl_share,
            length=length,
            positions=position_weights(length, loss.positions, topk=topk, band=band),
            combine=config.teacher.combine,
            chunk_elements=loss.chunk_elements,
        ),
        on_policy=config.train.states == "on_policy",
        first=topk * int(getattr(indexer, "compress_rate", 1)),
        rows=loss.rows,
        decode_share=loss.decode_share,
        seed=config.train.seed,
    )


def decode_rows(plan: Plan, batch: Batch) -> Tensor | None:
    """bool [B, S] where phases differ; the draws are the sequences' own numbers."""
    draws = range(batch.first, batch.first + len(batch.ids))
    prompts = plan.prompts(batch, draws)
    return None if prompts is None else decode_mask(prompts, batch.ids.shape[1])
