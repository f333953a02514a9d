"""One batch of distillation: teachers, the student's own forward, losses and gradients by layer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from distill.data.batch import Batch
from distill.models.forward import run
from distill.models.student import Students, in_precision
from distill.objective.loss import Sums, student_loss
from distill.objective.plan import Plan
from distill.objective.query_sampling import (
    decode_mask,
)
from distill.objective.teacher_assignment import assemble
from evalkit.dsa import IndexerCall, index_features
from evalkit.dsa.families.sites import indexer_sites


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
    native = indexer_sites(model).layout.native
    rows = decode_mask(prompts, batch.ids.shape[1]) if prompts is not None else None
    with states:
        run(
            model, plan.schedule if plan.on_policy else native, batch, visit,
            layers=students.layers, decode_rows=rows if plan.on_policy else None,
        )  # fmt: skip
    return result
