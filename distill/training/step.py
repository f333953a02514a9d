"""One batch of distillation: teachers, the student's own forward, losses and gradients by layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from distill.data.batch import Batch
from distill.errors import at
from distill.models.causal_lm import CausalLM
from distill.models.forward import visit_indexer_calls
from distill.models.student import Students, in_precision
from distill.objective.loss import LossSums, student_loss
from distill.objective.plan import DistillPlan
from distill.objective.query_sampling import decode_mask
from distill.objective.text_activations import Original
from evalkit.dsa import IndexerCall, index_features


def distil_batch(
    model: CausalLM,
    students: Students,
    batch: Batch,
    draws: Sequence[int],
    plan: DistillPlan,
    original: Original | None = None,
) -> dict[int, LossSums]:
    """Losses per full layer; the gradient of their sums is added to the students.

    Args:
        model: the original, frozen.
        students: in training.
        batch: some sequences.
        draws: number of the draw, per sequence.
        plan: see `make_plan`.
        original: who reads the batch; default: a forward of the model.

    Raises:
        NonFiniteError: hidden states, scores or a loss are NaN or infinite; names the layer.
    """
    prompts = plan.prompt_lengths(batch, draws)
    groups = plan.query_groups(batch, draws, prompts)
    activations = (original or Original(model, plan, students.layers)).read(batch, groups)
    objective = plan.objective.trained()
    losses = {layer: LossSums() for layer in students.layers}

    def visit(layer: int, call: IndexerCall) -> None:
        student, device = students.modules[layer], call.hidden.device
        for group in (g.to(device) for g in groups):
            layers = plan.assignment.teachers(group.phase, layer, plan.kind)
            if not layers:
                continue
            with torch.enable_grad(), torch.autocast(device.type, enabled=False):
                inputs = in_precision(call, student)
                features = index_features(model, student, inputs, group.positions)
                teachers = [activations.teachers[plan.kind, group.phase, each] for each in layers]
                with at(f"layer {plan.schedule.layer_ids[layer]}"):
                    sums = student_loss(features, teachers, objective, weight=group.weight)
                    sums.check_finite()
            losses[layer].add(sums)

    if not plan.on_policy:
        for layer, call in activations.calls.items():
            visit(layer, call)
        return losses
    rows = None if prompts is None else decode_mask(prompts, batch.ids.shape[1])
    with students.acting(model):
        visit_indexer_calls(
            model,
            plan.schedule,
            batch,
            visit,
            layers=students.layers,
            policy=plan.policy,
            decode_rows=rows,
        )
    return losses
