"""What a step takes from the original, kept for texts that are drawn again.

Off-policy, inputs of the students and their teachers are the original's: they follow from the text
alone. So a text goes through the model once; later draws of it take other query positions of what
that forward left, as long as all texts fit into `LIMIT`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from distill.config.train import DistillConfig
from distill.data.batch import Batch
from distill.models.causal_lm import CausalLM
from distill.models.sizes import FP32, ModelSizes
from distill.objective.plan import DistillPlan
from distill.objective.query_sampling import PHASES, QueryGroup
from distill.objective.teacher_assignment import (
    BatchTeachers,
    TeacherAssignment,
    teachers_of_batch,
)
from evalkit.dsa import IndexerCall

LIMIT = 4 * 2**30
"""Bytes of activations that are kept."""


@dataclass(frozen=True, slots=True)
class TextActivations:
    """One batch of text in the original.

    Attributes:
        teachers: of the drawn query positions; see `teachers_of_batch`.
        calls: what the students' layers gave their indexers, by ordinal.
    """

    teachers: BatchTeachers
    calls: Mapping[int, IndexerCall]


Reader = Callable[
    [CausalLM, Batch, Sequence[QueryGroup], DistillPlan, Collection[int]], TextActivations
]


def read_original(
    model: CausalLM,
    batch: Batch,
    groups: Sequence[QueryGroup],
    plan: DistillPlan,
    layers: Collection[int],
) -> TextActivations:
    """One forward of the original for the teachers, and for the students at `layers` (ordinals).

    Raises:
        NonFiniteError: hidden states or index projections are NaN or infinite; names the layer.
    """
    calls: dict[int, IndexerCall] = {}
    with plan.original(model):
        teachers = teachers_of_batch(
            model,
            batch,
            groups,
            plan.assignment,
            (plan.kind,),
            visit=calls.__setitem__,
            visited=layers,
        )
    return TextActivations(teachers, calls)


class KeptActivations:
    """Activations of texts by their number, at every position that may be drawn."""

    def __init__(self) -> None:
        self._texts: dict[int, TextActivations] = {}

    def of_text(self, number: int) -> Reader:
        """`read_original` of a batch that is one text; it is read when it is asked for first."""

        def read(
            model: CausalLM,
            batch: Batch,
            groups: Sequence[QueryGroup],
            plan: DistillPlan,
            layers: Collection[int],
        ) -> TextActivations:
            first = plan.first_sparse_position
            if number not in self._texts:
                rows = torch.arange(first, max(first + 1, batch.ids.shape[1]))[None]
                every = [QueryGroup(g.phase, rows, torch.ones(rows.shape)) for g in groups]
                self._texts[number] = read_original(model, batch, every, plan, layers)
            return _at(self._texts[number], groups, first)

        return read


def _at(text: TextActivations, groups: Sequence[QueryGroup], first: int) -> TextActivations:
    """At the drawn positions; where nothing can be drawn they are 0 and count nothing."""
    teachers = {
        key: teacher.at((group.positions - first).clamp(min=0))
        for group in groups
        for key, teacher in text.teachers.items()
        if key[1] == group.phase
    }
    return TextActivations(teachers, text.calls)


def kept_bytes(
    sizes: ModelSizes, config: DistillConfig, assignment: TeacherAssignment, itemsize: int
) -> int:
    """Bytes of all texts' activations; 0 where none are kept: no text comes twice, or too many.

    Args:
        sizes: of the model.
        config: the recipe.
        assignment: who teaches whom.
        itemsize: bytes of an activation.
    """
    train, length = config.train, config.data.length
    if train.states == "on_policy" or train.steps * train.batch <= config.data.train:
        return 0
    students = {layer for _, layer in assignment.consumers}
    inputs = len(students) * length * (sizes.hidden + sizes.latent) * itemsize
    kind, keys = config.teacher.kind, length // sizes.ratio
    if kind == "indexer":
        teacher = keys * sizes.width + length * sizes.heads * (sizes.width + 1)
    else:
        teacher = length * keys
    alike = all(
        assignment.consumers["prefill", f] == assignment.consumers["decode", f] for f in students
    )
    phases = PHASES[:1] if alike else PHASES
    taught = sum(len(assignment.teachers_in_phase(phase, kind)) for phase in phases)
    whole = config.data.train * (inputs + taught * teacher * FP32)
    return whole if whole <= LIMIT else 0
