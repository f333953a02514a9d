"""Oracle selections: the best that a full layer could select for its consumers, untrained.

For every full layer the oracle takes the top-k of the mean of its consumers' own index
distributions, as the original model computes them. Not a strict bound: in the arm the consumers'
inputs differ from the original's, and a student that was chosen in the arm may do better
(docs/distillation.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.errors import at
from distill.losses.base import Needs
from distill.models.causal_lm import CausalLM
from distill.models.forward import visit_indexer_calls
from distill.models.indexers import indexer_at
from distill.objective.query_sampling import PHASES
from distill.objective.teacher_assignment import TeacherAssignment
from distill.objective.teachers import IndexTeacher, consumer_targets, index_teacher
from evalkit.dsa import IndexerCall, ReuseSchedule
from evalkit.dsa.families.sites import indexer_sites, topk_of

CHUNK = 2**22


def oracle_selections(
    model: CausalLM,
    schedule: ReuseSchedule,
    batch: Batch,
    layers: Collection[int],
    decode_rows: Tensor | None = None,
    only: Mapping[int, int] | None = None,
) -> dict[int, Tensor]:
    """Per full layer, the selection that serves its consumers best: int64 [B, S, topk].

    Args:
        model: the original.
        schedule: the arm.
        batch: whole sequences.
        layers: full layers (ordinals) to make a selection for.
        decode_rows: bool [B, S], where the decode consumers count.
        only: the one consumer's indexer that is asked, by full layer; default: the mean of all. In
            a phase in which it does not teach, all are asked.
    """
    sites = indexer_sites(model)
    native = sites.layout.native
    positions = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    phases = PHASES if decode_rows is not None else PHASES[:1]
    assignment = TeacherAssignment.of(native, schedule, tuple(layers))
    asked = {(f, phase): assignment.teachers(phase, f) for f in layers for phase in phases}
    for (f, phase), consumers in asked.items():
        if only is not None and only.get(f) in consumers:
            asked[f, phase] = (only[f],)
    teachers: dict[int, IndexTeacher] = {}

    def visit(ordinal: int, call: IndexerCall) -> None:
        with at(f"layer {sites.layout.layer_ids[ordinal]}"):
            teachers[ordinal] = index_teacher(model, indexer_at(sites, ordinal), call, positions)

    needed = {layer for consumers in asked.values() for layer in consumers}
    visit_indexer_calls(model, native, batch, visit, layers=needed)
    selections = {}
    for f in layers:
        topk = topk_of(indexer_at(sites, f))
        by_phase = {
            phase: top_of_mean([teachers[c] for c in asked[f, phase]], topk)
            for phase in phases
            if asked[f, phase]
        }
        selections[f] = next(iter(by_phase.values()))
        if decode_rows is not None and len(by_phase) == 2:
            late = decode_rows.unsqueeze(-1)
            selections[f] = torch.where(late, by_phase["decode"], by_phase["prefill"])
    return selections


@torch.no_grad()
def top_of_mean(teachers: Sequence[IndexTeacher], topk: int, chunk: int = CHUNK) -> Tensor:
    """Top-k keys of the mean of some distributions, -1 where fewer are visible: [B, S, topk]."""
    features = teachers[0].features
    batch, count = features.query.shape[:2]
    keys = features.key.shape[1]
    step = max(1, chunk // (batch * keys))
    parts = []
    for start in range(0, count, step):
        part = slice(start, min(count, start + step))
        support = ~torch.isneginf(teachers[0].scores(part, keys))
        mean = consumer_targets(teachers, part, support, Needs(mean=True)).mean
        value, index = mean.masked_fill(~support, -1.0).topk(min(topk, keys), dim=-1)
        parts.append(index.masked_fill(value < 0, -1))
    return torch.cat(parts, dim=1)
