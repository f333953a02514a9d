"""Held-out metrics beyond the training loss.

Per full layer and consumer, at fixed query positions, with the students in the arm:

* recall: share of the consumer's own top-k that the student selects;
* boundary recall: the same over the lower half of the consumer's list, where the border lies;
* mass recall: share of the consumer's real attention that falls on what the student selects;
* every loss of the recipe, those of weight 0 included;

and for the model as a whole the divergence of its final logits from the original's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from distill.errors import at
from distill.models.causal_lm import CausalLM
from distill.models.forward import final_hidden_states
from distill.models.student import Students, in_precision
from distill.objective.loss import LossSums, WeightedMean, merge_losses, student_loss
from distill.objective.plan import DistillPlan
from distill.objective.query_sampling import QueryGroup, decode_mask
from distill.objective.teacher_assignment import BatchTeachers, TeacherKind, teachers_of_batch
from distill.objective.teachers import Teacher
from distill.validation.logit_kl import Reference, divergence
from evalkit.dsa import IndexerCall, Phase, index_features, select
from evalkit.dsa.families.sites import indexer_sites, topk_of
from evalkit.dsa.overlap import common, mass_recall, size

METRICS = ("recall", "boundary_recall", "mass_recall")

Pair = tuple[Phase, int, int]


@dataclass(slots=True)
class HeldOutSums:
    """Metrics of some batches as sums that add up over batches and processes.

    Attributes:
        pairs: means by metric, per (phase, full layer, consumer).
        losses: by full layer.
        divergence: of the final logits, at every valid position, in order.
    """

    pairs: dict[Pair, dict[str, WeightedMean]] = field(default_factory=dict)
    losses: dict[int, LossSums] = field(default_factory=dict)
    divergence: list[Tensor] = field(default_factory=list)

    def add(self, pair: Pair, metric: str, values: Tensor, weight: Tensor) -> None:
        """Add values per query [B, R] with their weights."""
        total, count = float((values * weight).sum()), float(weight.sum())
        self._mean_of(pair, metric).add(total, count)

    def merge(self, other: HeldOutSums) -> None:
        """Add those of another process; divergences stay with their process."""
        for pair, means in other.pairs.items():
            for metric, mean in means.items():
                self._mean_of(pair, metric).add(mean.total, mean.weight)
        merge_losses(self.losses, other.losses)

    def mean(self, metric: str, layer: int | None = None) -> float:
        """Mean over consumers (and layers), each counted alike; NaN where there is none."""
        return mean_over_consumers(
            means[metric]
            for (_, f, _), means in self.pairs.items()
            if (layer is None or f == layer) and metric in means
        )

    def _mean_of(self, pair: Pair, metric: str) -> WeightedMean:
        return self.pairs.setdefault(pair, {}).setdefault(metric, WeightedMean())


def mean_over_consumers(means: Iterable[WeightedMean]) -> float:
    """Mean of the means that counted anything; NaN where there is none."""
    values = [one.mean for one in means if one.weight]
    return sum(values) / len(values) if values else math.nan


def recall_of(selected: Tensor, wanted: Tensor, keys: int) -> Tensor:
    """Share of the wanted keys that are selected, per query [B, R]."""
    return common(selected, wanted, keys) / size(wanted).clamp(min=1)


def evaluate(
    model: CausalLM,
    students: Students,
    plan: DistillPlan,
    reference: Reference,
    numbers: Sequence[int] | None = None,
) -> HeldOutSums:
    """Metrics of the students on the reference's text, or on some of its batches."""
    sums = HeldOutSums()
    for number in range(len(reference.batches)) if numbers is None else numbers:
        _evaluate_batch(model, students, plan, reference, number, sums)
    return sums


def _evaluate_batch(
    model: CausalLM,
    students: Students,
    plan: DistillPlan,
    reference: Reference,
    number: int,
    sums: HeldOutSums,
) -> None:
    batch = reference.batches[number]
    prompts = plan.prompt_lengths(batch, batch.own_draws)
    groups = plan.query_groups(batch, batch.own_draws, prompts)
    kinds = _kinds_shown(model, plan.kind)
    with plan.original(model):
        teachers = teachers_of_batch(model, batch, groups, plan.assignment, kinds)

    def visit(layer: int, call: IndexerCall) -> None:
        if layer in students.modules:
            student = students.modules[layer]
            for group in (g.to(call.hidden.device) for g in groups):
                if plan.assignment.consumers[group.phase, layer]:
                    _evaluate_student(model, student, layer, call, group, plan, teachers, sums)

    decode = None if prompts is None else decode_mask(prompts, batch.ids.shape[1])
    with students.acting(model):
        hidden = final_hidden_states(
            model, plan.schedule, batch, visit=visit, policy=plan.policy, decode_rows=decode
        )
    before = reference.hidden[number].to(hidden)
    head = model.get_output_embeddings()
    sums.divergence.append(divergence(head, before, hidden[batch.valid]))


def _evaluate_student(
    model: CausalLM,
    student: nn.Module,
    layer: int,
    call: IndexerCall,
    group: QueryGroup,
    plan: DistillPlan,
    teachers: BatchTeachers,
    sums: HeldOutSums,
) -> None:
    """Losses and recalls of one student at the queries of one phase."""
    phase, assignment = group.phase, plan.assignment
    with torch.autocast(call.hidden.device.type, enabled=False):
        inputs = in_precision(call, student)
        features = index_features(model, student, inputs, group.positions)
        layers = assignment.teachers(phase, layer, plan.kind)
        of_layers = [teachers[plan.kind, phase, teacher] for teacher in layers]
        with at(f"layer {plan.schedule.layer_ids[layer]}"):
            losses = student_loss(features, of_layers, plan.objective, weight=group.weight)
            losses.check_finite()
        merge_losses(sums.losses, {layer: losses})
        selected = select(features, topk_of(student), policy=plan.policy)
    for consumer in assignment.consumers[phase, layer]:
        index = teachers.get(("indexer", phase, assignment.indexer_of[consumer]))
        attention = teachers.get(("attention", phase, consumer))
        _compare(sums, (phase, layer, consumer), selected, index, attention, group.weight)


def _compare(
    sums: HeldOutSums,
    pair: Pair,
    selected: Tensor,
    index: Teacher | None,
    attention: Teacher | None,
    weight: Tensor,
) -> None:
    """Recalls of a student's selection against one consumer."""
    source = index or attention
    if source is None:
        return
    consumer = _ranked(source, selected.shape[-1])
    lower = consumer[..., consumer.shape[-1] // 2 :]
    for metric, wanted in (("recall", consumer), ("boundary_recall", lower)):
        recall = recall_of(selected, wanted, source.keys)
        sums.add(pair, metric, recall, weight * (size(wanted) > 0))
    if attention is not None:
        share = attention.scores(slice(None), source.keys).exp()
        sums.add(pair, "mass_recall", mass_recall(selected, share), weight)


def _ranked(teacher: Teacher, topk: int) -> Tensor:
    """Top-k keys of a teacher by falling score, -1 where fewer are visible: [B, R, k]."""
    value, index = teacher.scores(slice(None), teacher.keys).topk(min(topk, teacher.keys), dim=-1)
    return index.masked_fill(value == float("-inf"), -1)


def _kinds_shown(model: CausalLM, kind: TeacherKind) -> tuple[TeacherKind, ...]:
    """Indexers, attention where the model shows it, and the teacher's kind."""
    text = model.config.get_text_config()
    kinds: list[TeacherKind] = ["indexer"]
    if text._attn_implementation == "sdpa" and not indexer_sites(model).family.sentinel:
        kinds.append("attention")
    return tuple(dict.fromkeys([*kinds, kind]))
