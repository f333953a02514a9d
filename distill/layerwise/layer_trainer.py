"""The training of one full layer from disk: start, gradient, evaluations, the best state kept.

Same losses, query positions, order of the text, rate, clipping and choice as the trainer that holds
the whole model. What needs final logits (candidates of the closed form; checkpoints, unless recall
chooses them) is asked of `LogitEvaluator`, one pass over the layers for all candidates, one for all
checkpoints.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from distill.errors import at
from distill.init.candidates import CandidateChoice
from distill.init.ridge_regression import Regression
from distill.layerwise.batches import LayerBatch, call_of, evaluation_batch, training_batch
from distill.layerwise.logit_evaluator import LogitEvaluator
from distill.layerwise.setup import LayerwiseSetup
from distill.models.indexers import scale_of
from distill.models.student import State, Students, in_precision, reinitialise
from distill.objective.loss import LossSums, WeightedMean, student_loss
from distill.objective.teachers import IndexTeacher
from distill.training.events import (
    CandidateChosen,
    LayerEvaluated,
    LayerStepDone,
    LogitsCompared,
    Means,
    Measured,
)
from distill.training.optimizer import (
    adamw,
    begin_step,
    clip_gradients,
    require_finite_parameters,
)
from distill.validation.metrics import mean_over_consumers, recall_of
from evalkit.dsa import IndexFeatures, select
from evalkit.dsa.families.sites import topk_of
from evalkit.dsa.overlap import size


@dataclass(slots=True)
class TrainedLayer:
    """What became of one full layer.

    Attributes:
        layer: its ordinal.
        state: of the indexer that was kept.
        last: of the indexer after the last step.
        before: metrics of the undistilled indexer, and of the undistilled arm's logits.
        after: metrics of the one that was kept, later layers still undistilled.
        best_step: where that was.
        chosen: candidate of the closed form, or the start's name.
        scores: the criterion by candidate; lower is better.
    """

    layer: int
    state: State
    last: State
    before: dict[str, float]
    after: dict[str, float]
    best_step: int
    chosen: str
    scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Kept:
    """One evaluated state of the indexer."""

    step: int
    metrics: dict[str, float]
    state: State


class LayerTrainer:
    """Trains the indexer of one full layer.

    Attributes:
        students: the indexer in training, alone.
    """

    def __init__(
        self,
        setup: LayerwiseSetup,
        layer: int,
        indexer: nn.Module,
        evaluator: LogitEvaluator,
        seconds: Callable[[], float],
        on_event: Callable[[Measured], None],
    ) -> None:
        """Prepare the training of a full layer.

        Args:
            setup: text, teachers and inputs.
            layer: its ordinal.
            indexer: the model's own.
            evaluator: for comparisons by final logits.
            seconds: of work so far, for the log.
            on_event: called with everything that is measured.
        """
        self._setup, self._layer, self._evaluator = setup, layer, evaluator
        self._seconds, self._on_event = seconds, on_event
        self._id = setup.schedule.layer_ids[layer]
        self._by_logits = setup.config.choice.checkpoint == "logit_kl"
        self._objective = setup.plan.objective.trained()
        self._losses = [entry.name for entry in self._objective.losses]
        self._original = indexer
        self._scale = scale_of(indexer)
        self.students = Students({layer: indexer}, setup.config.student.tensors)
        self._student = self.students.modules[layer]

    def run(self) -> TrainedLayer:
        """Start, train, keep the best.

        Raises:
            NonFiniteError: a loss, gradient or divergence is; names layer and step.
        """
        with at(f"layer {self._id}"):
            return self._run()

    def _run(self) -> TrainedLayer:
        train = self._setup.config.train
        before = self._evaluate()
        if self._by_logits:
            before |= self._evaluator.undistilled("held_out")
        chosen, scores = self._start()
        kept = [_Kept(0, self._evaluate(), self._state())]
        optimizer = adamw(self.students.named().values(), train)
        for step in range(1, train.steps + 1):
            with at(f"step {step}"):
                self._step(step, optimizer)
            if step == train.steps or step % train.evaluate_every == 0:
                with at(f"evaluation after step {step}"):
                    metrics = self._evaluate()
                self._on_event(
                    LayerEvaluated(
                        seconds=self._seconds(), layer=self._id, step=step, metrics=metrics
                    )
                )
                kept.append(_Kept(step, metrics, self._state()))
                best = max(range(len(kept)), key=lambda i: kept[i].metrics["recall"])
                if 0 < train.patience < len(kept) - best:
                    break
        last, best_kept = self._state(), self._best(kept)
        return TrainedLayer(
            layer=self._layer,
            state=best_kept.state,
            last=last,
            before=before,
            after=best_kept.metrics,
            best_step=best_kept.step,
            chosen=chosen,
            scores=scores,
        )

    def _best(self, kept: list[_Kept]) -> _Kept:
        """The state to keep; the first of equals."""
        if not self._by_logits:
            return max(kept, key=lambda one: one.metrics["recall"])
        states = [one.state for one in kept]
        compared = self._evaluator.compare(self._layer, states, "held_out")
        kept = [
            _Kept(one.step, one.metrics | logits, one.state)
            for one, logits in zip(kept, compared, strict=True)
        ]
        for one in kept:
            self._on_event(
                LogitsCompared(
                    seconds=self._seconds(), layer=self._id, step=one.step, metrics=one.metrics
                )
            )
        return min(kept, key=lambda one: one.metrics["logit_kl_tail"])

    def _state(self) -> State:
        return self.students.state_of(self._layer)

    # -- start ----------------------------------------------------------------------------------

    def _start(self) -> tuple[str, dict[str, float]]:
        """Initialise the student; name of the start, and logit KL by candidate."""
        start = self._setup.config.student.start
        if start == "random":
            reinitialise(self.students, self._setup.config.train.seed)
        if start != "closed_form":
            return start, {}
        states = {"own": self._state()} | self._candidates()
        scores, measure = self._compared(states)
        chosen = min(scores, key=lambda name: scores[name])
        self.students.load_of(self._layer, states[chosen])
        choice = CandidateChoice(self._id, chosen, scores, measure)
        self._on_event(CandidateChosen(seconds=self._seconds(), choice=choice))
        return chosen, scores

    def _compared(self, states: Mapping[str, State]) -> tuple[dict[str, float], str]:
        """A number per candidate, the lower the better, and what it is.

        Final logits where layers run here; from a dump, the share of the consumers' top-k that a
        candidate misses.
        """
        if self._setup.dump is None:
            compared = self._evaluator.compare(self._layer, list(states.values()), "calibration")
            pairs = zip(states, compared, strict=True)
            return {name: one["logit_kl_tail"] for name, one in pairs}, "logit KL"
        missed = {}
        for name, state in states.items():
            self.students.load_of(self._layer, state)
            missed[name] = 1 - self._evaluate("calibration")["recall"]
        return missed, "missed top-k"

    def _candidates(self) -> dict[str, State]:
        """One state per teacher other than the layer itself, from the calibration text."""
        setup, store, device = self._setup, self._setup.store, self._setup.device
        regression = Regression(setup.model, self._student)
        teachers = {}
        for teacher in sorted(setup.teachers(self._layer) - {self._layer}):
            teachers[teacher] = copy.deepcopy(self._original)
            teachers[teacher].load_state_dict(setup.layers.indexer_state(teacher))
        for name, batch in setup.split("calibration").items():
            valid = batch.valid.to(device)
            inputs = store.get(f"input/{self._layer}/{name}", device)
            regression.inputs(call_of(setup, inputs, name), valid)
            for teacher, indexer in teachers.items():
                inputs = store.get(f"teach/{teacher}/call/{name}", device)
                regression.outputs(teacher, indexer, call_of(setup, inputs, name), valid)
        ridge, ids = setup.config.closed_form.ridge, setup.schedule.layer_ids
        return {
            str(ids[teacher]): regression.candidate(teacher, indexer, ridge)
            for teacher, indexer in teachers.items()
        }

    # -- gradient -------------------------------------------------------------------------------

    def _step(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Optimiser step number `step`, counted from 1."""
        train = self._setup.config.train
        begin_step(optimizer, step - 1, train)
        sums = LossSums()
        draws = range((step - 1) * train.batch, step * train.batch)
        for start in range(0, len(draws), train.micro_batch):
            drawn = draws[start : start + train.micro_batch]
            sums.add(self._sums(training_batch(self._setup, self._layer, drawn, self._scale)))
        sums.check_finite()
        parameters = [p for p in self.students.named().values() if p.grad is not None]
        for parameter in parameters:
            cast(Tensor, parameter.grad).div_(max(sums.queries, 1.0))
        norm = clip_gradients(parameters, train.max_grad_norm)
        optimizer.step()
        require_finite_parameters(self.students.named())
        self._on_event(
            LayerStepDone(
                seconds=self._seconds(),
                layer=self._id,
                step=step,
                losses=sums.means(self._losses),
                grad_norm=norm,
            )
        )

    def _sums(self, batch: LayerBatch) -> LossSums:
        """Losses of a batch; their gradient goes into the student where it is wanted."""
        total = LossSums()
        for features, teachers, weight in self._groups(batch):
            total.add(student_loss(features, teachers, self._objective, weight=weight))
        return total

    def _groups(
        self, batch: LayerBatch
    ) -> Iterator[tuple[IndexFeatures, list[IndexTeacher], Tensor]]:
        """The student's features at the queries of every phase, their teachers and weights."""
        call = in_precision(batch.call, self._student)
        for sampled, teachers in batch.groups:
            group = sampled.to(call.hidden.device)
            features = self._setup.layers.features(self._student, call, group.positions)
            yield features, teachers, group.weight

    # -- evaluation -----------------------------------------------------------------------------

    @torch.no_grad()
    def _evaluate(self, split: str = "held_out") -> dict[str, float]:
        """Losses, mean over queries and consumers; recall of their top-k, consumers alike."""
        losses, recalls = LossSums(), dict[tuple[str, int], WeightedMean]()
        topk = topk_of(self._student)
        for name, text in self._setup.split(split).items():
            batch = evaluation_batch(self._setup, self._layer, name, text, self._scale)
            losses.add(self._sums(batch))
            losses.check_finite()
            for (group, _), (features, teachers, weight) in zip(
                batch.groups, self._groups(batch), strict=True
            ):
                selected = select(features, topk, policy=self._setup.plan.policy)
                for i, teacher in enumerate(teachers):
                    wanted = select(teacher.features, topk)
                    counted = weight * (size(wanted) > 0)
                    recall = recall_of(selected, wanted, teacher.keys)
                    mean = recalls.setdefault((group.phase, i), WeightedMean())
                    mean.add(float((recall * counted).sum()), float(counted.sum()))
        means: Means = losses.means(self._losses)
        recall_mean = mean_over_consumers(recalls.values())
        return {k: v for k, v in means.items() if v is not None} | {"recall": recall_mean}
