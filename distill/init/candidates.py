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
from distill.init.ridge_regression import Regression
from distill.models.activation_cache import Prefix
from distill.models.forward import Batch, run
from distill.models.student import Students
from distill.objective.query_sampling import decode_mask
from distill.training.step import Plan
from distill.validation.logit_kl import Reference, divergence
from evalkit.dsa import IndexerCall
from evalkit.dsa.families.registry import seam


@dataclass(frozen=True, slots=True)
class Criterion:
    """A number for a candidate, from the divergence at every position.

    Attributes:
        weight: of each position, from what the undistilled arm does to it; sums to 1.
    """

    weight: Tensor

    @classmethod
    def of(cls, plain: Tensor, tail: float) -> Criterion:
        """Count the `tail` share of positions where the undistilled arm diverges most, evenly."""
        count = max(1, round(tail * len(plain)))
        border = plain.topk(count).values[-1]
        chosen = (plain >= border).float()
        return cls(chosen / chosen.sum())

    def __call__(self, divergence: Tensor) -> float:
        """Weighted mean."""
        return float((self.weight * divergence).sum())


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
        self._reference, self._ids = reference, seam(model).layout.layer_ids
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
    where = seam(model)
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


def arm_divergence(model: Any, students: Students, plan: Plan, reference: Reference) -> Tensor:
    """The arm with its students against the original, at every position of the reference."""
    with students.acting():
        return reference.divergence(model, plan.schedule, lambda b: decode_rows(plan, b))


def decode_rows(plan: Plan, batch: Batch) -> Tensor | None:
    """bool [B, S] where phases differ; the draws are the sequences' own numbers."""
    draws = range(batch.first, batch.first + len(batch.ids))
    prompts = plan.prompts(batch, draws)
    return None if prompts is None else decode_mask(prompts, batch.ids.shape[1])


def state_of(students: Students, layer: int) -> dict[str, Tensor]:
    """A copy of one student's tensors."""
    return {k: v.detach().clone() for k, v in students.modules[layer].state_dict().items()}


def set_state(students: Students, layer: int, state: dict[str, Tensor]) -> None:
    """Write one student's tensors."""
    with torch.no_grad():
        students.modules[layer].load_state_dict(state)
