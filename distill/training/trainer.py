"""The training loop: gradients of the students alone, probes, choice, states to go on from.

Everything random is a function of the seed and the step, so a run that was killed and resumed
reaches the weights of one that was not. Losses and gradients are sums; they are divided once per
step by the number of rows over all micro-batches and processes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from distill.config.train import TrainConfig
from distill.errors import DistillError
from distill.init.candidates import Choice, closed_form
from distill.models.student import reinitialise
from distill.objective.loss import Sums
from distill.objective.query_sampling import generator
from distill.setup import Session
from distill.training.checkpoint import load_state, optimizer_tensors, restore_optimizer, save_state
from distill.training.state import Progress, clip, drop_after, learning_rate
from distill.training.step import distil_batch
from distill.validation.evaluator import Look, Looker
from distill.validation.logit_kl import Criterion, arm_divergence, reference

METRICS = "metrics.jsonl"


class Trainer:
    """Trains the students of a session in a directory.

    Attributes:
        session: what is trained.
        progress: how far it is.
        best: tensors of the best students so far.
    """

    def __init__(
        self,
        session: Session,
        out: Path,
        accelerator: Any,
        on_event: Callable[[str, dict[str, Any]], None] = lambda *_: None,
    ) -> None:
        self.session = session
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        self._out, self._accelerator, self._on_event = out, accelerator, on_event
        self._train: TrainConfig = session.config.train
        self._named = session.students.named()
        self._optimizer = torch.optim.AdamW(
            self._named.values(), lr=self._train.lr, betas=(0.9, 0.98),
            weight_decay=self._train.weight_decay,
        )  # fmt: skip
        self._looker = Looker(session, accelerator)
        self._began = time.perf_counter()
        self._order: tuple[int, list[int]] = (-1, [])

    # -- the whole run --------------------------------------------------------------------------

    def run(self) -> None:
        """Start or resume, then train to the end.

        Raises:
            DistillError: the directory's state is damaged or another run's; the loss is no number.
        """
        found = load_state(self._out, self.identity())
        if found is None:
            self._start()
            self._save()
        else:
            self._resume(*found)
        while self.progress.step < self._train.steps and not self._patience_is_over():
            self._one_step()
        self.session.students.load(self.best)

    def identity(self) -> dict[str, Any]:
        """What a state must share with this run to be continued."""
        config = self.session.config
        sections = config.model_dump(
            mode="json", include={"dtype", "arm", "student", "teacher", "closed_form", "choice"}
        )
        loss = config.loss.model_dump(mode="json", exclude={"chunk_elements"})
        train = config.train.model_dump(
            mode="json", exclude={"micro_batch", "save_every", "trackers"}
        )
        return {
            "base": self.session.base["fingerprint"],
            "tokens": self.session.data.sha256,
            "loss": loss,
            "train": train,
            **sections,
        }

    # -- beginning ------------------------------------------------------------------------------

    def _start(self) -> None:
        session, config = self.session, self.session.config
        (self._out / METRICS).unlink(missing_ok=True)
        self._looker.weigh()
        before = self._looker.look()
        self.progress.before = before.summary()
        self._log("probe", {"step": 0, "what": "undistilled", **before.record()})
        if config.student.start == "random":
            reinitialise(session.students, self._train.seed)
        elif config.student.start == "closed_form":
            self._closed_form()
        self._synchronise()
        self._judge(self._looker.look())

    def _closed_form(self) -> None:
        session, config = self.session, self.session.config
        size, device = self._train.micro_batch, self._accelerator.device
        batches = session.data.splits["calibration"].batches(size, device)
        with self._accelerator.autocast():
            original = reference(session.model, session.where.layout.native, batches)
            plain = arm_divergence(session.model, session.students, session.plan, original)
            criterion = Criterion.of(plain, config.choice.tail)

            def chosen(choice: Choice) -> None:
                self.progress.choices.append(asdict(choice))
                self._log("choice", asdict(choice))

            closed_form(
                session.model, session.students, session.plan, original, criterion,
                config.closed_form, on_choice=chosen,
            )  # fmt: skip

    def _synchronise(self) -> None:
        """All processes go on from the first one's tensors."""
        from accelerate.utils import broadcast

        if self._accelerator.num_processes > 1:
            state = self.session.students.state()
            self.session.students.load({k: broadcast(v) for k, v in state.items()})

    def _resume(self, record: dict[str, Any], tensors: Mapping[str, dict[str, Tensor]]) -> None:
        self._looker.weigh()  # by the undistilled arm: the students are not in yet
        self.progress = Progress(**record["progress"])
        self.session.students.load(tensors["students"])
        self.best = tensors["best"]
        restore_optimizer(self._optimizer, self._named, tensors["optimizer"])
        self._began = time.perf_counter() - self.progress.seconds
        if self._accelerator.is_main_process:
            drop_after(self._out / METRICS, self.progress.step)
        self._on_event("resume", {"step": self.progress.step})

    # -- one step -------------------------------------------------------------------------------

    def _one_step(self) -> None:
        step, rate = self.progress.step, learning_rate(self.progress.step, self._train)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad(set_to_none=True)
        sums = self._gradients(step)
        norms = self._reduce(sums)
        self._optimizer.step()
        self.progress.step = step + 1
        self._report(sums, norms, rate)
        done = self.progress.step == self._train.steps
        if done or self.progress.step % self._train.evaluate_every == 0:
            self._judge(self._looker.look())
        if done or self.progress.step % self._train.save_every == 0 or self._patience_is_over():
            self._save()

    def _gradients(self, step: int) -> dict[int, Sums]:
        """Losses of this process' share; gradients of their sums are in the students."""
        session, size = self.session, self._train.batch
        world, rank = self._accelerator.num_processes, self._accelerator.process_index
        draws = list(range(step * size, (step + 1) * size))[rank::world]
        total = {layer: Sums() for layer in session.students.layers}
        for start in range(0, len(draws), self._train.micro_batch):
            some = draws[start : start + self._train.micro_batch]
            numbers = [self._number(draw) for draw in some]
            batch = session.data.splits["train"].batch(numbers, self._accelerator.device)
            with self._accelerator.autocast():
                found = distil_batch(session.model, session.students, batch, some, session.plan)
            for layer, sums in found.items():
                total[layer].add(sums)
        return total

    def _number(self, draw: int) -> int:
        """Which training sequence a draw takes: every epoch in an order of its own."""
        count = len(self.session.data.splits["train"])
        epoch, place = divmod(draw, count)
        if self._order[0] != epoch:
            mixed = torch.randperm(count, generator=generator(self._train.seed, epoch, 4))
            self._order = (epoch, mixed.tolist())
        return self._order[1][place]

    def _reduce(self, sums: dict[int, Sums]) -> dict[int, float]:
        """Sum over processes, divide by the rows, clip each indexer; returns the norms."""
        counts = torch.tensor([s.vector() for s in sums.values()], dtype=torch.float64)
        counts = self._all_sum(counts.to(self._accelerator.device)).cpu()
        norms = {}
        for (layer, own), row in zip(sums.items(), counts.tolist(), strict=True):
            own.kl, own.listmle, own.rows, own.listed = row
            if not math.isfinite(own.kl + own.listmle):
                raise DistillError(
                    f"step {self.progress.step + 1}: the loss of layer {layer} is no number;"
                    " lower train.lr, or look at the data"
                )
            parameters = [p for n, p in self._named.items() if n.startswith(f"{layer}.")]
            self._reduce_gradients(parameters, max(own.rows, 1.0))
            norms[layer] = clip(parameters, self._train.clip)
        return norms

    def _reduce_gradients(self, parameters: list[nn.Parameter], rows: float) -> None:
        """One flat exchange per indexer."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = self._all_sum(torch.cat([g.flatten() for g in grads])) / rows
        pieces = torch.split(flat, [p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter).clone()

    def _all_sum(self, tensor: Tensor) -> Tensor:
        reduced: Tensor = self._accelerator.reduce(tensor, reduction="sum")
        return reduced

    # -- looking, keeping -----------------------------------------------------------------------

    def _judge(self, look: Look) -> None:
        score = look.score(self.session.config.choice.checkpoint)
        self._log("probe", {"step": self.progress.step, "what": "students", **look.record()})
        if score < self.progress.best or not self.best:
            self.progress.best, self.progress.best_step = score, self.progress.step
            self.progress.after = look.summary()
            self.progress.since = 0
            self.best = self.session.students.state()
        else:
            self.progress.since += 1

    def _patience_is_over(self) -> bool:
        return 0 < self._train.patience <= self.progress.since

    def _save(self) -> None:
        self.progress.seconds = time.perf_counter() - self._began
        if self._accelerator.is_main_process:
            tensors = {
                "students": self.session.students.state(),
                "best": self.best,
                "optimizer": optimizer_tensors(self._optimizer, self._named),
            }
            facts = {"progress": asdict(self.progress)}
            save_state(self._out, self.progress.step, tensors, facts, self.identity())
        self._accelerator.wait_for_everyone()

    def _report(self, sums: dict[int, Sums], norms: dict[int, float], rate: float) -> None:
        ids = self.session.where.layout.layer_ids
        layers = {
            str(ids[layer]): {
                "kl": own.kl / max(own.rows, 1.0),
                "listmle": own.listmle / own.listed if own.listed else None,
                "grad_norm": norms[layer],
            }
            for layer, own in sums.items()
        }
        mean = sum(entry["kl"] or 0.0 for entry in layers.values()) / len(layers)
        self._log("train", {"step": self.progress.step, "lr": rate, "kl": mean, "layers": layers})

    def _log(self, kind: str, values: dict[str, Any]) -> None:
        seconds = round(time.perf_counter() - self._began, 3)
        row = {"kind": kind, **values, "seconds": seconds}
        if self._accelerator.is_main_process:
            with (self._out / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        numbers = {f"{kind}/{k}": v for k, v in values.items() if isinstance(v, float)}
        if self._train.trackers and numbers:
            self._accelerator.log(numbers, step=self.progress.step)
        self._on_event(kind, row)
