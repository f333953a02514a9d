"""Consumers of each full layer, their teacher layers, and the teachers of one batch.

The original model runs once per batch; what its layers say at the drawn query positions is kept in
a form that is linear in the length.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.errors import DistillError, at
from distill.models.causal_lm import CausalLM
from distill.models.forward import Visitor, visit_indexer_calls
from distill.models.indexers import indexer_at
from distill.objective.query_sampling import PHASES, QueryGroup
from distill.objective.teachers import AttentionTeacher, BatchTeacher, index_teacher
from evalkit.dsa import IndexerCall, Phase, ReuseSchedule
from evalkit.dsa.attention import allowed_keys, attention_seen, attention_share
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.features import take_rows
from evalkit.dsa.selection import SelectionPolicy

TeacherKind = Literal["indexer", "attention", "attention_dense"]
BatchTeachers = Mapping[tuple[TeacherKind, Phase, int], BatchTeacher]


def consumers_of(schedule: ReuseSchedule, layer: int) -> set[int]:
    """Layers that read the selection of a full layer, in either phase."""
    return {consumer for phase in PHASES for consumer in schedule.consumers(layer, phase)}


def own_attention_teaches(schedule: ReuseSchedule, teacher: TeacherKind) -> bool:
    """Whether this is a warm-up: nothing is reused, and each layer's own attention teaches it.

    The dense warm-up of the DeepSeek-V3.2 report (arXiv 2512.02556, section 2.1.1).
    """
    alone = all(consumers_of(schedule, layer) == {layer} for layer in schedule.full_layers)
    return alone and teacher != "indexer"


def trained_layers(
    schedule: ReuseSchedule,
    first_layer: Literal["keep", "train", "auto"],
    teacher: TeacherKind = "indexer",
    policy: SelectionPolicy | None = None,
) -> tuple[int, ...]:
    """Full layers (ordinals) whose indexers train: those that serve another layer, or all.

    Args:
        schedule: the arm.
        first_layer: ``keep`` leaves the first full layer out.
        teacher: who teaches; all layers train where it makes a warm-up of the schedule.
        policy: how they select; with one a layer that serves itself alone has to learn, too.

    Raises:
        DistillError: none is left.
    """
    every = policy is not None or own_attention_teaches(schedule, teacher)
    layers = tuple(
        layer
        for layer in schedule.full_layers
        if (every or consumers_of(schedule, layer) - {layer})
        and not (layer == schedule.full_layers[0] and first_layer == "keep")
    )
    if not layers:
        kept = " (the first one is kept: student.first_layer)" if first_layer == "keep" else ""
        raise DistillError(
            f"schedule {schedule}: no indexer to train, every full layer serves itself alone{kept}"
        )
    return layers


@dataclass(frozen=True, slots=True)
class TeacherAssignment:
    """Consumers of each full layer and their teacher layers.

    Attributes:
        consumers: (phase, full layer) to the layers that read its selection.
        indexer_of: consumer to the layer whose indexer teaches for it: itself, or its native source
            where the checkpoint has no indexer.
    """

    consumers: Mapping[tuple[Phase, int], tuple[int, ...]]
    indexer_of: Mapping[int, int]

    @classmethod
    def of(
        cls, native: ReuseSchedule, schedule: ReuseSchedule, layers: Sequence[int]
    ) -> TeacherAssignment:
        """For some full layers (ordinals) of a schedule, on a model with a native one."""
        consumers = {(p, f): schedule.consumers(f, p) for f in layers for p in PHASES}
        everyone = {consumer for group in consumers.values() for consumer in group}
        return cls(consumers, {c: native.source[c] for c in sorted(everyone)})

    def teachers(self, phase: Phase, layer: int, kind: TeacherKind = "indexer") -> tuple[int, ...]:
        """Teaching layers of a full layer, one per consumer; a layer may come twice."""
        consumers = self.consumers[phase, layer]
        return tuple(self.indexer_of[c] for c in consumers) if kind == "indexer" else consumers

    def teachers_in_phase(self, phase: Phase, kind: TeacherKind = "indexer") -> set[int]:
        """All teaching layers of a phase."""
        layers = [f for p, f in self.consumers if p == phase]
        return {t for f in layers for t in self.teachers(phase, f, kind)}

    def indexers_for(self, layer: int) -> set[int]:
        """All layers whose indexers teach a full layer, in either phase."""
        return {t for phase in PHASES for t in self.teachers(phase, layer)}


def teachers_of_batch(
    model: CausalLM,
    batch: Batch,
    groups: Sequence[QueryGroup],
    assignment: TeacherAssignment,
    kinds: Collection[TeacherKind],
    *,
    visit: Visitor = lambda *_: None,
    visited: Collection[int] = (),
) -> BatchTeachers:
    """The teachers of a batch by (kind, phase, layer), from one forward of the original model.

    `visit` sees the indexer calls of the layers `visited` (ordinals) in the same forward.
    """
    sites = indexer_sites(model)
    teachers: dict[tuple[TeacherKind, Phase, int], BatchTeacher] = {}

    def see(ordinal: int, call: IndexerCall) -> None:
        if ordinal in visited:
            visit(ordinal, call)
        for group in groups if "indexer" in kinds else ():
            if ordinal in assignment.teachers_in_phase(group.phase):
                positions = group.positions.to(call.hidden.device)
                with at(f"layer {sites.layout.layer_ids[ordinal]}"):
                    teacher = index_teacher(model, indexer_at(sites, ordinal), call, positions)
                teachers["indexer", group.phase, ordinal] = teacher

    def attend(ordinal: int, q: Tensor, k: Tensor, scale: float, mask: Tensor | None) -> None:
        for group in groups:
            positions = group.positions.to(q.device)
            for kind in kinds:
                if kind != "indexer" and ordinal in assignment.teachers_in_phase(group.phase, kind):
                    causal = mask if kind == "attention" else None
                    allowed = allowed_keys(positions, k.shape[2], causal)
                    query = take_rows(q.transpose(1, 2), positions).transpose(1, 2)
                    share = attention_share(query, k, scale, allowed)
                    teachers[kind, group.phase, ordinal] = AttentionTeacher(share)

    attends = any(kind != "indexer" for kind in kinds)
    layers = {
        teacher
        for group in groups
        for kind in kinds
        for teacher in assignment.teachers_in_phase(group.phase, kind)
    }
    with torch.no_grad(), attention_seen(model, attend) if attends else nullcontext():
        visit_indexer_calls(
            model,
            sites.layout.native,
            batch,
            see,
            layers=layers.union(visited),
            through_attention=attends,
        )
    return teachers
