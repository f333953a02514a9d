"""The training loop: gradients of the students alone, held-out evaluation, checkpoints.

Everything random is a function of the seed and the step, so a run that was killed and resumed
reaches the weights of one that was not. Losses and gradients are sums; they are divided once per
step by the number of query positions over all micro-batches and processes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from distill.config.train import TrainConfig
from distill.data.sampler import Sampler
from distill.errors import at
from distill.init.candidates import CandidateChoice, closed_form
from distill.models.sizes import sizes_of
from distill.models.student import State, reinitialise
from distill.objective.loss import LossSums, merge_losses
from distill.objective.text_activations import KeptOriginal, Original, kept_bytes
from distill.setup import TrainingSetup
from distill.training.checkpoint import (
    TrainingCheckpoint,
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)
from distill.training.events import (
    CandidateChosen,
    Evaluated,
    FirstLayerChosen,
    LayerStep,
    Measured,
    OnEvent,
    Resumed,
    StepDone,
)
from distill.training.identity import run_identity
from distill.training.metrics_log import MetricsLog, Row
from distill.training.optimizer import (
    adamw,
    begin_step,
    clip_gradients,
    require_finite_parameters,
)
from distill.training.state import AS_IT_CAME, AS_TRAINED, TrainState
from distill.training.step import distil_batch
from distill.validation.evaluator import HeldOutEvaluator
from distill.validation.logit_kl import Criterion, arm_divergence, reference
from distill.validation.long_range import long_range_gain

if TYPE_CHECKING:
    from accelerate import Accelerator


class Trainer:
    """Trains the students of a setup in a directory.

    Attributes:
        setup: what is trained.
        state: how far it is.
        best: tensors of the best students so far.
    """

    def __init__(
        self,
        setup: TrainingSetup,
        out: Path,
        accelerator: Accelerator,
        on_event: OnEvent = lambda _: None,
    ) -> None:
        self.setup = setup
        self.state = TrainState()
        self.best: State = {}
        self._out, self._accelerator, self._on_event = out, accelerator, on_event
        self._train: TrainConfig = setup.config.train
        self._losses = [entry.name for entry in setup.plan.objective.losses]
        self._named = setup.students.named()
        self._optimizer = adamw(self._named.values(), self._train)
        self._evaluator = HeldOutEvaluator(setup, accelerator)
        self._sampler = Sampler(len(setup.data.splits["train"]), self._train.seed)
        self._original = _original(setup, accelerator.num_processes)
        self._log = MetricsLog(out)
        self._came = setup.students.state()
        self._began = time.perf_counter()

    # -- the whole run --------------------------------------------------------------------------

    def run(self) -> None:
        """Start or resume, then train to the end.

        Raises:
            DistillError: the directory's state is damaged or another run's; the loss is NaN.
        """
        checkpoint = load_checkpoint(self._out, self.identity())
        if checkpoint is None:
            self._start()
            self._save()
        else:
            self._resume(checkpoint)
        while self.state.step < self._train.steps and not self._patience_is_over():
            self._one_step()
        self.setup.students.load(self.best)
        if self.setup.config.student.first_layer == "auto":
            self._choose_first_layer()

    def identity(self) -> dict[str, object]:
        """What a state must share with this run to be continued."""
        setup = self.setup
        base = setup.base
        tokens = setup.data.sha256
        return run_identity(setup.config, base["fingerprint"], tokens, base["config_sha256"])

    # -- start ----------------------------------------------------------------------------------

    def _start(self) -> None:
        setup, start = self.setup, self.setup.config.student.start
        if self._accelerator.is_main_process:
            self._log.start()
        self._evaluator.select_positions()
        with at("undistilled arm"):
            before = self._evaluator.evaluate()
        self.state.before = before.summary()
        undistilled = Evaluated(seconds=self._seconds, step=0, what="undistilled", metrics=before)
        self._measured(undistilled)
        if start == "random":
            reinitialise(setup.students, self._train.seed)
        elif start == "closed_form":
            self._closed_form()
        self._synchronise()
        self._evaluate()

    def _closed_form(self) -> None:
        setup, config = self.setup, self.setup.config
        size, device = self._train.micro_batch, self._accelerator.device
        batches = setup.data.splits["calibration"].batches(size, device)
        with self._accelerator.autocast():
            with setup.plan.original(setup.model):
                original = reference(setup.model, setup.native, batches)
            undistilled = arm_divergence(setup.model, setup.students, setup.plan, original)
            far = config.choice.positions == "far"
            gain = long_range_gain(setup.model, original) if far else None
            criterion = Criterion.of(undistilled, config.choice.tail, gain)

            def chosen(choice: CandidateChoice) -> None:
                choice = replace(choice, layer=setup.schedule.layer_ids[choice.layer])
                self.state.choices.append(choice)
                self._measured(CandidateChosen(seconds=self._seconds, choice=choice))

            closed_form(
                setup.model,
                setup.students,
                setup.plan,
                original,
                criterion,
                config.closed_form,
                on_choice=chosen,
            )

    def _synchronise(self) -> None:
        """All processes go on from the first one's tensors."""
        from accelerate.utils import broadcast

        if self._accelerator.num_processes > 1:
            state = self.setup.students.state()
            self.setup.students.load({k: broadcast(v) for k, v in state.items()})

    def _resume(self, checkpoint: TrainingCheckpoint) -> None:
        self._evaluator.select_positions()  # the undistilled arm is in: the students are not yet
        self.state = checkpoint.state
        self.setup.students.load(checkpoint.students)
        self.best = dict(checkpoint.best)
        restore_optimizer(self._optimizer, self._named, checkpoint.optimizer)
        self._began = time.perf_counter() - self.state.seconds
        if self._accelerator.is_main_process:
            self._log.resume(self._is_done)
        self._on_event(Resumed(step=self.state.step))

    def _is_done(self, row: Row) -> bool:
        """Whether a row of the log is of a step before the checkpoint."""
        step = row.get("step", 0)
        return isinstance(step, int) and step <= self.state.step

    # -- one step -------------------------------------------------------------------------------

    def _one_step(self) -> None:
        step = self.state.step
        rate = begin_step(self._optimizer, step, self._train)
        with at(f"step {step + 1}"):
            sums = self._sum_over_processes(self._gradients(step))
            norms = self._normalise_gradients(sums)
            self._optimizer.step()
            self._require_finite_students()
        self.state.step = step + 1
        ids = self.setup.schedule.layer_ids
        layers = {
            ids[layer]: LayerStep(sums_of_layer.means(self._losses), norms[layer])
            for layer, sums_of_layer in sums.items()
        }
        self._measured(
            StepDone(seconds=self._seconds, step=self.state.step, lr=rate, layers=layers)
        )
        done = self.state.step == self._train.steps
        if done or self.state.step % self._train.evaluate_every == 0:
            self._evaluate()
        if done or self.state.step % self._train.save_every == 0 or self._patience_is_over():
            self._save()

    def _gradients(self, step: int) -> dict[int, LossSums]:
        """Losses of this process' share; gradients of their sums are in the students."""
        setup, size = self.setup, self._train.batch
        world, rank = self._accelerator.num_processes, self._accelerator.process_index
        draws = list(range(step * size, (step + 1) * size))[rank::world]
        total = {layer: LossSums() for layer in setup.students.layers}
        together = 1 if isinstance(self._original, KeptOriginal) else self._train.micro_batch
        for start in range(0, len(draws), together):
            drawn = draws[start : start + together]
            numbers = [self._sampler[draw] for draw in drawn]
            batch = setup.data.splits["train"].batch(numbers, self._accelerator.device)
            with self._accelerator.autocast():
                losses = distil_batch(
                    setup.model, setup.students, batch, drawn, setup.plan, self._original
                )
            merge_losses(total, losses)
        return total

    def _sum_over_processes(self, sums: dict[int, LossSums]) -> dict[int, LossSums]:
        vectors = [local.vector(self._losses) for local in sums.values()]
        local = torch.tensor(vectors, dtype=torch.float64).to(self._accelerator.device)
        whole: list[list[float]] = self._all_sum(local).cpu().tolist()
        return {
            layer: LossSums.from_vector(self._losses, vector)
            for layer, vector in zip(sums, whole, strict=True)
        }

    def _normalise_gradients(self, sums: dict[int, LossSums]) -> dict[int, float]:
        """Sum over processes, divide by the queries, clip each indexer; returns the norms."""
        norms = {}
        for layer, layer_sums in sums.items():
            parameters = list(self._parameters_of(layer).values())
            with at(f"layer {self.setup.schedule.layer_ids[layer]}"):
                layer_sums.check_finite()
                self._reduce_gradients(parameters, max(layer_sums.queries, 1.0))
                norms[layer] = clip_gradients(parameters, self._train.max_grad_norm)
        return norms

    def _parameters_of(self, layer: int) -> dict[str, nn.Parameter]:
        """Trainable parameters of one indexer by their own names."""
        prefix = f"{layer}."
        named = self._named.items()
        return {n.removeprefix(prefix): p for n, p in named if n.startswith(prefix)}

    def _require_finite_students(self) -> None:
        for layer in self.setup.students.layers:
            with at(f"layer {self.setup.schedule.layer_ids[layer]}"):
                require_finite_parameters(self._parameters_of(layer))

    def _reduce_gradients(self, parameters: Sequence[nn.Parameter], queries: float) -> None:
        """One flat exchange per indexer."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = self._all_sum(torch.cat([g.flatten() for g in grads])) / queries
        pieces = torch.split(flat, [p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter).clone()

    def _all_sum(self, tensor: Tensor) -> Tensor:
        reduced: Tensor = self._accelerator.reduce(tensor, reduction="sum")
        return reduced

    # -- evaluation, checkpoints ----------------------------------------------------------------

    def _evaluate(self) -> None:
        """Evaluate the students; keep them if they are the best so far."""
        with at(f"evaluation after step {self.state.step}"):
            state, metrics = self.state, self._evaluator.evaluate()
        score = metrics.score(self.setup.config.choice.checkpoint)
        self._measured(
            Evaluated(seconds=self._seconds, step=state.step, what="students", metrics=metrics)
        )
        if score < state.best or not self.best:
            state.best, state.best_step = score, state.step
            state.after = metrics.summary()
            state.without_improvement = 0
            self.best = self.setup.students.state()
        else:
            state.without_improvement += 1

    def _choose_first_layer(self) -> None:
        """Keep the first full layer as the best students have it, or as it came; ties: as it came.

        What trained above it has seen it trained: ``keep`` is the arm in which nothing has.
        """
        setup, state = self.setup, self.state
        first = setup.schedule.full_layers[0]
        if first not in setup.students.layers or state.first_layer:
            return
        came = {k: v for k, v in self._came.items() if k.startswith(f"{first}.")}
        setup.students.load({**self.best, **came})
        with at(f"evaluation with the first full layer {AS_IT_CAME}"):
            metrics = self._evaluator.evaluate()
        score = metrics.score(setup.config.choice.checkpoint)
        state.first_layer = {AS_TRAINED: state.best, AS_IT_CAME: score}
        if state.first_layer_came_back:
            self.best = setup.students.state()
            state.best, state.after = score, metrics.summary()
        setup.students.load(self.best)
        self._measured(
            FirstLayerChosen(
                seconds=self._seconds,
                layer=setup.schedule.layer_ids[first],
                step=state.step,
                chosen=AS_IT_CAME if state.first_layer_came_back else AS_TRAINED,
                scores=state.first_layer,
            )
        )
        self._save()

    def _patience_is_over(self) -> bool:
        return 0 < self._train.patience <= self.state.without_improvement

    def _save(self) -> None:
        self.state.seconds = self._seconds
        if self._accelerator.is_main_process:
            optimizer = optimizer_tensors(self._optimizer, self._named)
            students = self.setup.students.state()
            checkpoint = TrainingCheckpoint(self.state, students, self.best, optimizer)
            save_checkpoint(self._out, checkpoint, self.identity())
        self._accelerator.wait_for_everyone()

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def _measured(self, event: Measured) -> None:
        """Log an event, send its numbers to the trackers, show it."""
        if self._accelerator.is_main_process:
            self._log.append(event.row())
        numbers = {
            f"{event.kind}/{k}": v for k, v in event.values().items() if isinstance(v, float)
        }
        if self._train.trackers and numbers:
            self._accelerator.log(numbers, step=self.state.step)
        self._on_event(event)


def _original(setup: TrainingSetup, processes: int) -> Original:
    """Who reads the text for the steps: of one process, with every text kept where all fit."""
    sizes, _ = sizes_of(setup.model)
    itemsize = next(setup.model.parameters()).element_size()
    size = kept_bytes(sizes, setup.config, setup.plan.assignment, itemsize)
    reader = KeptOriginal if size and processes == 1 else Original
    return reader(setup.model, setup.plan, setup.students.layers)
