"""Probes on held-out text: what a number about the training loss cannot tell.

Per full layer and consumer, at fixed rows, with the students in the arm:

* recall: share of the consumer's own top-k that the student selects;
* boundary recall: the same over the lower half of the consumer's list, where the border lies;
* mass recall: share of the consumer's real attention that falls on what the student selects;
* both losses;

and for the model as a whole the divergence of its final logits from the original's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from distill.models.forward import run
from distill.models.student import Students, in_precision
from distill.objective.loss import Objective, Sums, student_loss
from distill.objective.plan import Plan
from distill.objective.query_sampling import decode_mask
from distill.objective.teacher_assignment import Found, Kind, assemble
from distill.objective.teachers import Teacher
from distill.validation.logit_kl import Reference, divergence
from evalkit.dsa import IndexerCall, index_features, select
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.overlap import common, mass_recall, size

NAMES = ("recall", "boundary_recall", "mass_recall")


@dataclass(slots=True)
class Tally:
    """Sums and counts of the probes of one (phase, full layer, consumer)."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, values: Tensor, weight: Tensor) -> None:
        """Add values per row [B, R] with their weights."""
        self.sums[name] = self.sums.get(name, 0.0) + float((values * weight).sum())
        self.counts[name] = self.counts.get(name, 0.0) + float(weight.sum())

    def mean(self, name: str) -> float:
        """NaN where nothing was counted."""
        count = self.counts.get(name, 0.0)
        return self.sums[name] / count if count else float("nan")


@dataclass(slots=True)
class Probe:
    """What one look found.

    Attributes:
        tallies: by (phase, full layer, consumer).
        losses: by full layer.
        divergence: of the final logits, at every valid position, in order.
    """

    tallies: dict[tuple[str, int, int], Tally] = field(default_factory=dict)
    losses: dict[int, Sums] = field(default_factory=dict)
    divergence: list[Tensor] = field(default_factory=list)

    def mean(self, name: str, layer: int | None = None) -> float:
        """Mean over consumers (and layers), each counted alike."""
        values = [
            tally.mean(name)
            for (_, f, _), tally in self.tallies.items()
            if (layer is None or f == layer) and tally.counts.get(name)
        ]
        return sum(values) / len(values) if values else float("nan")


def look(
    model: Any,
    students: Students,
    plan: Plan,
    reference: Reference,
    numbers: Sequence[int] | None = None,
) -> Probe:
    """Probe the students on the reference's text, or on some of its batches."""
    probe = Probe()
    chosen = range(len(reference.batches)) if numbers is None else numbers
    for number in chosen:
        _look_at(model, students, plan, reference, number, probe)
    return probe


def _look_at(
    model: Any, students: Students, plan: Plan, reference: Reference, number: int, probe: Probe
) -> None:
    batch = reference.batches[number]
    draws = range(batch.first, batch.first + len(batch.ids))
    prompts = plan.prompts(batch, draws)
    groups = plan.groups(batch, draws, prompts)
    found = assemble(model, batch, groups, plan.lessons, _kinds(model, plan.kind))

    def visit(layer: int, call: IndexerCall) -> None:
        if layer not in students.modules:
            return
        student: Any = students.modules[layer]
        for group in groups:
            rows, weight = group.rows.to(call.hidden.device), group.weight.to(call.hidden.device)
            served = plan.lessons.consumers[group.phase, layer]
            if not served:
                continue
            with torch.autocast(call.hidden.device.type, enabled=False):
                features = index_features(model, student, in_precision(call, student), rows)
                taught = plan.lessons.teachers(group.phase, layer, plan.kind)
                sums = student_loss(
                    features, [found[plan.kind, group.phase, t] for t in taught],
                    _both(plan.objective), weight=weight,
                )  # fmt: skip
                probe.losses.setdefault(layer, Sums()).add(sums)
                given = select(features, student.index_topk)
            for consumer in served:
                tally = probe.tallies.setdefault((group.phase, layer, consumer), Tally())
                speaker = plan.lessons.speaker[consumer]
                _compare(tally, given, found, group.phase, consumer, speaker, weight)

    decode = None if prompts is None else decode_mask(prompts, batch.ids.shape[1])
    with students.acting():
        hidden = run(
            model, plan.schedule, batch, visit,
            layers=students.layers, decode_rows=decode, output=True,
        )  # fmt: skip
    if hidden is None:
        raise RuntimeError("the forward stopped early")
    before = reference.hidden[number].to(hidden)
    head = model.get_output_embeddings()
    probe.divergence.append(divergence(head, before, hidden[batch.valid]))


def _compare(
    tally: Tally,
    given: Tensor,
    found: Found,
    phase: Any,
    consumer: int,
    speaker: int,
    weight: Tensor,
) -> None:
    index = found.get(("indexer", phase, speaker))
    attention = found.get(("attention", phase, consumer))
    source = index or attention
    if source is None:
        return
    own = _ranked(source, given.shape[-1])
    keys = source.keys
    lower = own[..., own.shape[-1] // 2 :]
    for name, wanted in (("recall", own), ("boundary_recall", lower)):
        real = weight * (size(wanted) > 0)
        tally.add(name, common(given, wanted, keys) / size(wanted).clamp(min=1), real)
    if attention is not None:
        share = attention.scores(slice(None), keys).exp()
        tally.add("mass_recall", mass_recall(given, share), weight)


def _ranked(teacher: Teacher, topk: int) -> Tensor:
    """Top-k keys of a teacher by falling score, -1 where fewer are visible: [B, R, k]."""
    value, index = teacher.scores(slice(None), teacher.keys).topk(min(topk, teacher.keys), dim=-1)
    return index.masked_fill(value == float("-inf"), -1)


def _both(objective: Objective) -> Objective:
    """The same objective, made to report both losses."""
    share = min(objective.kl_share, 0.5)
    return Objective(
        share, objective.length, objective.positions, objective.combine, objective.chunk_elements
    )


def _kinds(model: Any, kind: Kind) -> tuple[Kind, ...]:
    """The teacher's kind, indexers, and attention where the model shows it."""
    text = model.config.get_text_config()
    kinds: list[Kind] = ["indexer"]
    if text._attn_implementation == "sdpa" and not indexer_sites(model).family.sentinel:
        kinds.append("attention")
    return tuple(dict.fromkeys([*kinds, kind]))
