"""Oracle selections: what an arm could give, before anything is trained.

For every full layer the oracle takes the top-k of the mean of its consumers' own index
distributions, as the original model computes them: the best answer to "what do all of you want?".
Not a strict bound: in the arm the consumers' inputs differ from the original's, and a student that
was chosen in the arm may do better (docs/distillation.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.models.forward import run
from distill.objective.teacher_assignment import Lessons
from distill.objective.teachers import IndexTeacher, Teacher, index_teacher, target
from evalkit.dsa import Phase, ReuseSchedule
from evalkit.dsa.families.sites import IndexerSites, indexer_sites

CHUNK = 2**22


def oracle_selections(
    model: Any,
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
    where = indexer_sites(model)
    rows = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    phases: tuple[Phase, ...] = ("prefill",) if decode_rows is None else ("prefill", "decode")
    lessons = Lessons.of(model, schedule, tuple(layers))
    wanted = {(f, phase): lessons.teachers(phase, f) for f in layers for phase in phases}
    for (f, phase), served in wanted.items():
        if only is not None and only.get(f) in served:
            wanted[f, phase] = (only[f],)
    found: dict[int, IndexTeacher] = {}

    def visit(ordinal: int, call: Any) -> None:
        own: Any = where.owners[ordinal].indexer
        found[ordinal] = index_teacher(model, own, call, rows)

    needed = {layer for served in wanted.values() for layer in served}
    run(model, where.layout.native, batch, visit, layers=needed)
    result = {}
    for f in layers:
        owner: Any = where.owners[f]
        parts = {
            phase: top_of_mean([found[c] for c in wanted[f, phase]], owner.indexer.index_topk)
            for phase in phases
            if wanted[f, phase]
        }
        chosen = next(iter(parts.values()))
        if decode_rows is not None and len(parts) == 2:
            chosen = torch.where(decode_rows.unsqueeze(-1), parts["decode"], parts["prefill"])
        result[f] = chosen
    return result


@torch.no_grad()
def top_of_mean(teachers: list[IndexTeacher], topk: int, chunk: int = CHUNK) -> Tensor:
    """Top-k keys of the mean of some distributions, -1 where fewer are visible: [B, S, topk]."""
    features = teachers[0].features
    batch, count = features.query.shape[:2]
    keys = features.key.shape[1]
    step = max(1, chunk // (batch * keys))
    served: list[Teacher] = list(teachers)
    parts = []
    for start in range(0, count, step):
        part = slice(start, min(count, start + step))
        support = teachers[0].scores(part, keys) > float("-inf")
        mean = target(served, part, support).mean.masked_fill(~support, -1.0)
        value, index = mean.topk(min(topk, keys), dim=-1)
        parts.append(index.masked_fill(value < 0, -1))
    return torch.cat(parts, dim=1)


@contextmanager
def given(where: IndexerSites, selections: Mapping[int, Tensor]) -> Iterator[None]:
    """Full layers select what they are given, in the forwards of one batch."""
    before: list[tuple[Any, Any]] = []
    try:
        for ordinal, chosen in selections.items():
            indexer: Any = where.owners[ordinal].indexer
            fit = chosen if where.family.sentinel else chosen.clamp(min=0).int()
            before.append((indexer, vars(indexer).get("forward")))
            indexer.forward = lambda *_, fit=fit, **__: fit
        yield
    finally:
        for indexer, forward in before:
            if forward is None:
                del indexer.forward
            else:
                indexer.forward = forward
