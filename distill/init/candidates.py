"""Where the students begin: their own indexers, random ones, or the closed form.

The closed form goes through the full layers in depth order. For each it solves one candidate per
teacher (`distill.init.ridge_regression`), tries them and the layer's own indexer in the arm, and
keeps the one whose final logits are nearest to the original's on calibration text. Which positions
count is found from the text alone (`Criterion`): nobody tells where answers stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from distill.config.train import ClosedFormConfig
from distill.data.batch import Batch
from distill.init.ridge_regression import Regression
from distill.models.activation_cache import Prefix
from distill.models.forward import run
from distill.models.student import Students
from distill.objective.plan import Plan, decode_rows
from distill.validation.logit_kl import Criterion, Reference, divergence
from evalkit.dsa import IndexerCall
from evalkit.dsa.families.sites import indexer_sites


@dataclass(frozen=True, slots=True)
class Choice:
    """What was tried at one full layer.

    Attributes:
        layer: its ordinal.
        chosen: name of the candidate: ``own``, or the layer whose indexer was re-expressed.
        scores: the criterion by candidate.
    """

    layer: int
    chosen: str
    scores: dict[str, float]


def closed_form(
    model: Any,
    students: Students,
    plan: Plan,
    reference: Reference,
    criterion: Criterion,
    config: ClosedFormConfig,
    *,
    on_choice: Callable[[Choice], None] = lambda _: None,
    watch: Callable[[int, str, Tensor], None] = lambda *_: None,
) -> list[Choice]:
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
    """
    choices, tries = [], _Tries(model, students, plan, reference)
    for _ in range(config.rounds):
        for layer in students.layers:
            found = candidates(model, students, plan, reference.batches, layer, config.ridge)
            scores, states = {}, {"own": state_of(students, layer)} | found
            tries.begin(layer)
            for name, state in states.items():
                set_state(students, layer, state)
                found_there = tries.divergence()
                watch(layer, name, found_there)
                scores[name] = criterion(found_there)
            best = min(scores, key=lambda name: scores[name])
            set_state(students, layer, states[best])
            choices.append(Choice(layer, best, scores))
            on_choice(choices[-1])
    return choices


class _Tries:
    """Divergences of an arm in which one student at a time changes.

    What stands in front of that student's layer runs once; of it the last output is kept, [B, S,
    hidden] per batch, and the selections.
    """

    def __init__(self, model: Any, students: Students, plan: Plan, reference: Reference) -> None:
        self._model, self._students, self._plan = model, students, plan
        self._reference, self._ids = reference, indexer_sites(model).layout.layer_ids
        rows = [decode_rows(plan, batch) for batch in reference.batches]
        self._prefix, self._start = Prefix(model, reference.batches, rows), 0

    def begin(self, layer: int) -> None:
        """From now on the student of this full layer (ordinal) changes, until the next call."""
        start = self._ids[layer]
        known = self._start if self._start <= start else 0
        with self._students.acting():
            self._prefix.hold(self._plan.schedule, start=known, only=start - 1)
        self._start = start

    def divergence(self) -> Tensor:
        """As `arm_divergence`."""
        parts, head = [], self._model.get_output_embeddings()
        with self._students.acting():
            for number, batch in enumerate(self._reference.batches):
                hidden = self._prefix.final(self._plan.schedule, number, start=self._start)
                before = self._reference.hidden[number].to(hidden)
                parts.append(divergence(head, before, hidden[batch.valid]))
        return torch.cat(parts)


def candidates(
    model: Any,
    students: Students,
    plan: Plan,
    batches: Sequence[Batch],
    layer: int,
    ridge: float,
) -> dict[str, dict[str, Tensor]]:
    """States for one full layer, one per teacher other than itself; from two forwards a batch."""
    where = indexer_sites(model)
    teachers = sorted(plan.lessons.of_layer(layer) - {layer})
    regression = Regression(model, students.modules[layer])
    for batch in batches:

        def inputs(_: int, call: IndexerCall, valid: Tensor = batch.valid) -> None:
            regression.inputs(call, valid)

        def outputs(ordinal: int, call: IndexerCall, valid: Tensor = batch.valid) -> None:
            own: Any = where.owners[ordinal].indexer
            regression.outputs(ordinal, own, call, valid)

        if plan.on_policy:
            with students.acting():
                run(
                    model, plan.schedule, batch, inputs,
                    layers=(layer,), decode_rows=decode_rows(plan, batch),
                )  # fmt: skip
        else:
            run(model, where.layout.native, batch, inputs, layers=(layer,))
        run(model, where.layout.native, batch, outputs, layers=teachers)
    found = {}
    for teacher in teachers:
        own: Any = where.owners[teacher].indexer
        found[str(where.layout.layer_ids[teacher])] = regression.candidate(teacher, own, ridge)
    return found


def state_of(students: Students, layer: int) -> dict[str, Tensor]:
    """A copy of one student's tensors."""
    return {k: v.detach().clone() for k, v in students.modules[layer].state_dict().items()}


def set_state(students: Students, layer: int, state: dict[str, Tensor]) -> None:
    """Write one student's tensors."""
    with torch.no_grad():
        students.modules[layer].load_state_dict(state)
