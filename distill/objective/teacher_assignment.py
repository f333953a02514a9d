"""Who teaches whom, and the teachers of one batch.

The original model runs once per batch; what its layers say about the drawn rows is kept in a form
that is linear in the length.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.models.forward import run
from distill.objective.query_sampling import RowGroup
from distill.objective.teachers import AttentionTeacher, Teacher, index_teacher
from evalkit.dsa import IndexerCall, Phase, ReuseSchedule
from evalkit.dsa.attention import allowed_keys, attention_seen, attention_share
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.features import take_rows

Kind = Literal["indexer", "attention", "attention_dense"]


@dataclass(frozen=True, slots=True)
class Lessons:
    """Whom each full layer serves, and who speaks for them.

    Attributes:
        consumers: (phase, full layer) to the layers that read its selection.
        speaker: consumer to the layer whose indexer speaks for it: itself, or its native source
            where the checkpoint has no indexer.
    """

    consumers: dict[tuple[Phase, int], tuple[int, ...]] = field(default_factory=dict)
    speaker: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, schedule: ReuseSchedule, layers: Sequence[int]) -> Lessons:
        """For some full layers (ordinals) of a schedule."""
        native = indexer_sites(model).layout.native
        phases: tuple[Phase, ...] = ("prefill", "decode")
        consumers = {(p, f): schedule.consumers(f, p) for f in layers for p in phases}
        served = {c for group in consumers.values() for c in group}
        return cls(consumers, {c: native.source[c] for c in sorted(served)})

    def teachers(self, phase: Phase, layer: int, kind: Kind = "indexer") -> tuple[int, ...]:
        """Teaching layers of a full layer, one per consumer; a layer may come twice."""
        served = self.consumers[phase, layer]
        return tuple(self.speaker[c] for c in served) if kind == "indexer" else served

    def of_phase(self, phase: Phase, kind: Kind = "indexer") -> set[int]:
        """All teaching layers of a phase."""
        layers = [f for p, f in self.consumers if p == phase]
        return {t for f in layers for t in self.teachers(phase, f, kind)}

    def of_layer(self, layer: int) -> set[int]:
        """All layers whose indexers teach a full layer, in either phase."""
        phases: tuple[Phase, ...] = ("prefill", "decode")
        return {t for p in phases for t in self.teachers(p, layer)}


Found = dict[tuple[Kind, Phase, int], Teacher]


def assemble(
    model: Any,
    batch: Batch,
    groups: Sequence[RowGroup],
    lessons: Lessons,
    kinds: Collection[Kind],
) -> Found:
    """The teachers of a batch by (kind, phase, layer), from one forward of the original model."""
    where = indexer_sites(model)
    found: Found = {}

    def visit(ordinal: int, call: IndexerCall) -> None:
        indexer: Any = where.owners[ordinal].indexer
        for group in groups if "indexer" in kinds else ():
            if ordinal in lessons.of_phase(group.phase):
                rows = group.rows.to(call.hidden.device)
                found["indexer", group.phase, ordinal] = index_teacher(model, indexer, call, rows)

    def attend(ordinal: int, q: Tensor, k: Tensor, scale: float, mask: Tensor | None) -> None:
        for group in groups:
            rows = group.rows.to(q.device)
            for kind in kinds:
                if kind != "indexer" and ordinal in lessons.of_phase(group.phase, kind):
                    allowed = allowed_keys(rows, k.shape[2], mask if kind == "attention" else None)
                    query = take_rows(q.transpose(1, 2), rows).transpose(1, 2)
                    share = attention_share(query, k, scale, allowed)
                    found[kind, group.phase, ordinal] = AttentionTeacher(share)

    attends = any(kind != "indexer" for kind in kinds)
    layers = {t for g in groups for kind in kinds for t in lessons.of_phase(g.phase, kind)}
    native = where.layout.native
    last = max(layers)
    if attends and last + 1 < len(native):
        layers.add(last + 1)  # a layer attends after its indexer was called: go one further
    ends = attends and last + 1 == len(native)
    with torch.no_grad(), attention_seen(model, attend) if attends else nullcontext():
        run(model, native, batch, visit, layers=layers, output=ends)
    return found
