"""What stays the same over all batches of a distillation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor

from distill.config.train import DistillConfig
from distill.data.batch import Batch
from distill.models.causal_lm import CausalLM
from distill.models.forward import attending_densely
from distill.models.indexers import first_sparse_position, indexer_at
from distill.objective.loss import Objective, WeightedLoss
from distill.objective.query_sampling import (
    QueryGroup,
    decode_mask,
    has_two_phases,
    sample_prompt_lengths,
    sample_queries,
)
from distill.objective.teacher_assignment import (
    TeacherAssignment,
    TeacherKind,
    own_attention_teaches,
)
from evalkit.config.selection import Selection
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.families.sites import indexer_sites, topk_of


@dataclass(frozen=True, slots=True)
class DistillPlan:
    """What stays the same over all batches.

    Attributes:
        schedule: the arm.
        policy: how its full layers select; None: as the model was trained.
        assignment: consumers and teachers of the full layers that train.
        kind: of teacher.
        warm_up: whether each layer's own attention teaches it (`own_attention_teaches`).
        objective: the losses.
        on_policy: hidden states from the arm's forward, with the students in it.
        first_sparse_position: first query position that may see more keys than it can select.
        queries: query positions per sequence.
        decode_share: share of them after the prompt, where phases differ.
        seed: of all draws.
    """

    schedule: ReuseSchedule
    policy: Selection | None
    assignment: TeacherAssignment
    kind: TeacherKind
    warm_up: bool
    objective: Objective
    on_policy: bool
    first_sparse_position: int
    queries: int
    decode_share: float
    seed: int

    def original(self, model: CausalLM) -> AbstractContextManager[None]:
        """The model as the original that arms are measured against, while the block runs.

        In a warm-up by ``attention_dense`` it attends to every key, as before it had indexers.
        """
        if self.warm_up and self.kind == "attention_dense":
            return attending_densely(indexer_sites(model))
        return nullcontext()

    def prompt_lengths(self, batch: Batch, draws: Sequence[int]) -> Tensor | None:
        """Prompt lengths [B] where the phases differ, else None."""
        if not has_two_phases(self.schedule):
            return None
        return sample_prompt_lengths(
            batch.valid, draws, first=self.first_sparse_position, seed=self.seed
        )

    def query_groups(
        self, batch: Batch, draws: Sequence[int], prompt_lengths: Tensor | None
    ) -> list[QueryGroup]:
        """The drawn query positions of a batch."""
        return sample_queries(
            batch.valid,
            draws,
            first=self.first_sparse_position,
            count=self.queries,
            seed=self.seed,
            prompt_lengths=prompt_lengths,
            decode_share=self.decode_share,
        )

    def decode_rows(self, batch: Batch) -> Tensor | None:
        """bool [B, S] where phases differ; the draws are the sequences' own numbers."""
        prompt_lengths = self.prompt_lengths(batch, batch.own_draws)
        if prompt_lengths is None:
            return None
        return decode_mask(prompt_lengths, batch.ids.shape[1])


def make_plan(
    model: CausalLM, schedule: ReuseSchedule, layers: Sequence[int], config: DistillConfig
) -> DistillPlan:
    """The plan of a recipe for one model, which may be on the meta device.

    Args:
        model: the original.
        schedule: the arm.
        layers: ordinals that train.
        config: the recipe.
    """
    sites = indexer_sites(model)
    return DistillPlan(
        schedule=schedule,
        policy=config.arm.selection,
        assignment=TeacherAssignment.of(sites.layout.native, schedule, layers),
        kind=config.teacher.kind,
        warm_up=own_attention_teaches(schedule, config.teacher.kind),
        objective=Objective(
            losses=tuple(WeightedLoss(e.kind, e.weight, e.loss, e.package) for e in config.loss),
            topk=topk_of(indexer_at(sites, 0)),
            combine=config.teacher.combine,
            chunk_elements=config.queries.chunk_elements,
            policy=config.arm.selection,
        ),
        on_policy=config.train.states == "on_policy",
        first_sparse_position=first_sparse_position(sites),
        queries=config.queries.per_sequence,
        decode_share=config.queries.decode_share,
        seed=config.train.seed,
    )
