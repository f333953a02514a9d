"""Closed-form start: one candidate per teacher, and the choice among them.

The closed form goes through the full layers in depth order. For each it solves one candidate per
teacher (`distill.init.ridge_regression`), tries them and the layer's own indexer in the arm, and
keeps the one whose final logits are nearest to the original's on calibration text. Which positions
count is found from the text alone (`Criterion`): nobody tells where answers stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.config.train import ClosedFormConfig
from distill.data.batch import Batch
from distill.errors import at
from distill.init.ridge_regression import Regression
from distill.models.activation_cache import ActivationCache
from distill.models.causal_lm import CausalLM
from distill.models.forward import visit_indexer_calls
from distill.models.indexers import indexer_at
from distill.models.student import State, Students
from distill.objective.plan import DistillPlan
from distill.validation.logit_kl import Criterion, Reference, divergence
from evalkit.dsa import IndexerCall
from evalkit.dsa.families.sites import indexer_sites


@dataclass(frozen=True, slots=True)
class CandidateChoice:
    """What was tried at one full layer.

    Attributes:
        layer: its ordinal.
        chosen: name of the candidate: ``own``, or the layer whose indexer was re-expressed.
        scores: the criterion by candidate; lower is better.
        measure: what it is.
    """

    layer: int
    chosen: str
    scores: dict[str, float]
    measure: str = "logit KL"


def closed_form(
    model: CausalLM,
    students: Students,
    plan: DistillPlan,
    reference: Reference,
    criterion: Criterion,
    config: ClosedFormConfig,
    *,
    on_choice: Callable[[CandidateChoice], None] = lambda _: None,
    watch: Callable[[int, str, Tensor], None] = lambda *_: None,
) -> list[CandidateChoice]:
    """Give the students the best candidate each, in depth order.

    Args:
        model: the original.
        students: changed in place.
        plan: arm and teachers.
        reference: calibration text with the original's predictions.
        criterion: how candidates compare.
        config: ridge and rounds.
        on_choice: called after each layer.
        watch: called with (layer, candidate, divergence at every position).

    Raises:
        NonFiniteError: a candidate's tensors or divergences are; names layer and candidate.
    """
    choices, trial = [], _Trial(model, students, plan, reference)
    for _ in range(config.rounds):
        for layer in students.layers:
            place = f"layer {plan.schedule.layer_ids[layer]}"
            with at(place):
                states = {"own": students.state_of(layer)} | candidates(
                    model, students, plan, reference.batches, layer, config.ridge
                )
            scores = {}
            trial.begin(layer)
            for name, state in states.items():
                students.load_of(layer, state)
                with at(f"{place}, candidate {name}"):
                    by_position = trial.divergence()
                watch(layer, name, by_position)
                scores[name] = criterion(by_position)
            best = min(scores, key=lambda name: scores[name])
            students.load_of(layer, states[best])
            choices.append(CandidateChoice(layer, best, scores))
            on_choice(choices[-1])
    return choices


class _Trial:
    """Divergences of an arm in which one student at a time changes.

    What comes before that student's layer runs once; of it the last output is cached, [B, S,
    hidden] per batch, and the selections.
    """

    def __init__(
        self, model: CausalLM, students: Students, plan: DistillPlan, reference: Reference
    ) -> None:
        self._model, self._students, self._plan = model, students, plan
        self._reference, self._ids = reference, plan.schedule.layer_ids
        rows = [plan.decode_rows(batch) for batch in reference.batches]
        self._cache, self._start = ActivationCache(model, reference.batches, rows, plan.policy), 0

    def begin(self, layer: int) -> None:
        """From now on the student of this full layer (ordinal) changes, until the next call."""
        start = self._ids[layer]
        cached = self._start if self._start <= start else 0
        with self._students.acting(self._model):
            self._cache.commit(self._plan.schedule, start=cached, only=start - 1)
        self._start = start

    def divergence(self) -> Tensor:
        """As `arm_divergence`."""
        parts, head = [], self._model.get_output_embeddings()
        with self._students.acting(self._model):
            for number, batch in enumerate(self._reference.batches):
                hidden = self._cache.final_hidden_states(
                    self._plan.schedule, number, start=self._start
                )
                before = self._reference.hidden[number].to(hidden)
                parts.append(divergence(head, before, hidden[batch.valid]))
        return torch.cat(parts)


def candidates(
    model: CausalLM,
    students: Students,
    plan: DistillPlan,
    batches: Sequence[Batch],
    layer: int,
    ridge: float,
) -> dict[str, State]:
    """States for one full layer, one per teacher other than itself; from two forwards a batch."""
    sites = indexer_sites(model)
    teachers = sorted(plan.assignment.indexers_for(layer) - {layer})
    regression = Regression(model, students.modules[layer])
    for batch in batches:

        def inputs(_: int, call: IndexerCall, valid: Tensor = batch.valid) -> None:
            regression.inputs(call, valid)

        def outputs(ordinal: int, call: IndexerCall, valid: Tensor = batch.valid) -> None:
            regression.outputs(ordinal, indexer_at(sites, ordinal), call, valid)

        native = sites.layout.native
        if plan.on_policy:
            rows = plan.decode_rows(batch)
            with students.acting(model):
                visit_indexer_calls(
                    model,
                    plan.schedule,
                    batch,
                    inputs,
                    layers=(layer,),
                    policy=plan.policy,
                    decode_rows=rows,
                )
        else:
            visit_indexer_calls(model, native, batch, inputs, layers=(layer,))
        visit_indexer_calls(model, native, batch, outputs, layers=teachers)
    return {
        str(sites.layout.layer_ids[teacher]): regression.candidate(
            teacher, indexer_at(sites, teacher), ridge
        )
        for teacher in teachers
    }
