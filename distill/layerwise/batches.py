"""Batches of a full layer, put together from the shelf: its inputs, and what its teachers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from distill.data.batch import Batch
from distill.layerwise.setup import Job
from distill.objective.query_sampling import RowGroup
from distill.objective.teachers import IndexTeacher
from evalkit.dsa import IndexerCall, IndexFeatures


@dataclass(frozen=True, slots=True)
class Lesson:
    """One batch for one full layer.

    Attributes:
        call: its inputs.
        groups: rows and their teachers, one per consumer.
    """

    call: IndexerCall
    groups: list[tuple[RowGroup, list[IndexTeacher]]]


def drawn_lesson(job: Job, layer: int, draws: Sequence[int], scale: float) -> Lesson:
    """Some draws of training text."""
    numbers = [job.numbers[draw] for draw in draws]
    batch = job.data.splits["train"].batch(numbers)
    places, seen = [job.place(number) for number in numbers], [job.seen_at(d) for d in draws]
    length = batch.ids.shape[1]
    inputs = [job.shelf.row(f"input/{layer}/{name}", row, job.device) for name, row in seen]
    call = _call(job, [{k: v[:, :length] for k, v in part.items()} for part in inputs], seen)
    prompts = job.plan.prompts(batch, list(draws))
    groups = []
    for group in job.plan.groups(batch, list(draws), prompts):
        teachers = []
        for teacher in job.plan.lessons.teachers(group.phase, layer):
            root = f"teach/{teacher}"
            said = [job.shelf.get(f"{root}/draw/{d}/{group.phase}", job.device) for d in draws]
            keys = [job.shelf.row(f"{root}/keys/{n}", r, job.device)["key"] for n, r in places]
            teachers.append(_teacher(said, _stacked([k[:, :length] for k in keys]), group, scale))
        if teachers:
            groups.append((group, teachers))
    return Lesson(call, groups)


def whole_lesson(
    job: Job, layer: int, name: str, batch: Batch, groups: Sequence[RowGroup], scale: float
) -> Lesson:
    """A batch of held-out or calibration text at its own rows."""
    inputs = job.shelf.get(f"input/{layer}/{name}", job.device)
    rows = [(name, row) for row in range(len(batch.ids))]
    found = []
    for group in groups:
        teachers = []
        for teacher in job.plan.lessons.teachers(group.phase, layer):
            root = f"teach/{teacher}"
            key = job.shelf.get(f"{root}/keys/{name}", job.device)["key"]
            said = job.shelf.get(f"{root}/look/{name}/{group.phase}", job.device)
            teachers.append(_teacher([said], key, group, scale))
        if teachers:
            found.append((group, teachers))
    return Lesson(_call(job, [inputs], rows[:1]), found)


def call_from(job: Job, tensors: dict[str, Tensor], name: str) -> IndexerCall:
    """A whole batch's indexer call from its stored inputs."""
    return _call(job, [tensors], [(name, 0)])


def _call(job: Job, parts: list[dict[str, Tensor]], places: list[tuple[str, int]]) -> IndexerCall:
    hidden = _stacked([part["hidden"] for part in parts])
    latent = _stacked([part["q_resid"] for part in parts]) if "q_resid" in parts[0] else None
    length, rope = hidden.shape[1], None
    for name, _ in places:  # the tables are those of positions: any long enough ones will do
        if f"rope/{name}" in job.shelf:
            table = job.shelf.get(f"rope/{name}", job.device)
            if table["cos"].shape[1] >= length:
                rope = (table["cos"][:, :length], table["sin"][:, :length])
                break
    positions = torch.arange(length, device=job.device)[None]
    return IndexerCall(hidden, latent, rope, None, positions, None, 0)


def _teacher(
    said: list[dict[str, Tensor]], key: Tensor, group: RowGroup, scale: float
) -> IndexTeacher:
    return IndexTeacher(
        IndexFeatures(
            query=torch.cat([part["query"] for part in said]),
            key=key,
            weight=torch.cat([part["weight"] for part in said]),
            scale=scale,
            positions=group.rows.to(key.device),
        )
    )


def _stacked(parts: list[Tensor]) -> Tensor:
    """[1, S, ...] tensors as [B, longest S, ...], zeros behind the shorter ones."""
    longest = max(part.shape[1] for part in parts)
    return torch.cat([pad(p, (0, 0) * (p.dim() - 2) + (0, longest - p.shape[1])) for p in parts])
