"""One batch of distillation: teachers, the student's own forward, losses and gradients by layer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from distill.config.train import DistillConfig
from distill.losses import position_weights
from distill.models.forward import Batch, run
from distill.models.student import Students, in_precision
from distill.objective.loss import Objective, Sums, student_loss
from distill.objective.query_sampling import (
    RowGroup,
    boundaries,
    decode_mask,
    row_groups,
    two_phases,
)
from distill.objective.teacher_assignment import Kind, Lessons, assemble
from evalkit.dsa import IndexerCall, ReuseSchedule, index_features
from evalkit.dsa.families.registry import seam


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
    where = seam(model)
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


def distil_batch(
    model: Any, students: Students, batch: Batch, draws: Sequence[int], plan: Plan
) -> dict[int, Sums]:
    """Losses per full layer; the gradient of their sums is added to the students.

    Args:
        model: the original, frozen.
        students: in training.
        batch: some sequences.
        draws: number of the draw, per sequence.
        plan: see `make_plan`.
    """
    prompts = plan.prompts(batch, draws)
    groups = plan.groups(batch, draws, prompts)
    found = assemble(model, batch, groups, plan.lessons, (plan.kind,))
    result = {layer: Sums() for layer in students.layers}

    def visit(layer: int, call: IndexerCall) -> None:
        student = students.modules[layer]
        for group in groups:
            served = plan.lessons.teachers(group.phase, layer, plan.kind)
            if not served:
                continue
            rows = group.rows.to(call.hidden.device)
            with torch.enable_grad(), torch.autocast(call.hidden.device.type, enabled=False):
                features = index_features(model, student, in_precision(call, student), rows)
                sums = student_loss(
                    features,
                    [found[plan.kind, group.phase, t] for t in served],
                    plan.objective,
                    weight=group.weight.to(call.hidden.device),
                )
            result[layer].add(sums)

    states = students.acting() if plan.on_policy else nullcontext()
    native = seam(model).layout.native
    rows = decode_mask(prompts, batch.ids.shape[1]) if prompts is not None else None
    with states:
        run(
            model, plan.schedule if plan.on_policy else native, batch, visit,
            layers=students.layers, decode_rows=rows if plan.on_policy else None,
        )  # fmt: skip
    return result
