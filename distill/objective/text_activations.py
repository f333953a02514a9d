"""What a step takes from the original, kept for texts that are drawn again.

Off-policy, inputs of the students and their teachers are the original's: they follow from the text
alone. So a text goes through the model once; later draws of it take other query positions of what
that forward left, as long as all texts fit into `LIMIT`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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


class Original:
    """The original model, as a step of distillation asks it."""

    def __init__(self, model: CausalLM, plan: DistillPlan, students: Collection[int]) -> None:
        """`students`: ordinals that train; off-policy their inputs are the original's."""
        self._model, self._plan = model, plan
        self._visited = () if plan.on_policy else students

    def read(self, batch: Batch, groups: Sequence[QueryGroup]) -> TextActivations:
        """One forward: teachers at the query positions of the groups, inputs of the students.

        Raises:
            NonFiniteError: hidden states or index projections are NaN or infinite; names the layer.
        """
        calls: dict[int, IndexerCall] = {}
        with self._plan.original(self._model):
            teachers = teachers_of_batch(
                self._model,
                batch,
                groups,
                self._plan.assignment,
                (self._plan.kind,),
                visit=calls.__setitem__,
                visited=self._visited,
            )
        return TextActivations(teachers, calls)


class KeptOriginal(Original):
    """The same for batches of one text each: a text is read once, at all that may be drawn of it.

    Attributes:
        texts: activations by token ids.
    """

    def __init__(self, model: CausalLM, plan: DistillPlan, students: Collection[int]) -> None:
        super().__init__(model, plan, students)
        self.texts: dict[tuple[int, ...], TextActivations] = {}

    def read(self, batch: Batch, groups: Sequence[QueryGroup]) -> TextActivations:
        """See `Original`; the batch is one text without padding."""
        first, text = self._plan.first_sparse_position, tuple(batch.ids[0].tolist())
        if text not in self.texts:
            rows = torch.arange(first, max(first + 1, len(text)))[None]
            every = [QueryGroup(g.phase, rows, torch.ones(rows.shape)) for g in groups]
            self.texts[text] = super().read(batch, every)
        return _at(self.texts[text], groups, first)


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
