"""Distributed evaluation on the held-out split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

import torch
from torch import Tensor

from distill.setup import TrainingSetup
from distill.validation.logit_kl import Criterion, arm_divergence, reference
from distill.validation.long_range import long_range_gain
from distill.validation.metrics import METRICS, HeldOutSums, evaluate

if TYPE_CHECKING:
    from accelerate import Accelerator

T = TypeVar("T")


class HeldOutRecord(TypedDict):
    """One evaluation in the log, besides its means: metrics per layer, and per pair."""

    layers: dict[str, dict[str, float | None]]
    pairs: list[dict[str, str | int | float]]


@dataclass(frozen=True, slots=True)
class HeldOutMetrics:
    """Metrics over the held-out text of all processes.

    Attributes:
        sums: of all processes.
        losses: names of the losses, as the recipe lists them.
        tail_kl: divergence of the final logits, positions weighted as `choice` says.
        logit_kl: the same at all positions.
        layer_ids: absolute id per ordinal.
    """

    sums: HeldOutSums
    losses: tuple[str, ...]
    tail_kl: float
    logit_kl: float
    layer_ids: tuple[int, ...]

    def score(self, measure: Literal["logit_kl", "recall"]) -> float:
        """The number that a checkpoint is kept by; lower is better."""
        return self.tail_kl if measure == "logit_kl" else -self.sums.mean("recall")

    def summary(self) -> dict[str, float]:
        """Means over layers and consumers."""
        means = {metric: round(self.sums.mean(metric), 4) for metric in METRICS}
        return {"logit_kl": self.logit_kl, "logit_kl_tail": self.tail_kl, **means}

    def record(self) -> HeldOutRecord:
        """Losses and metrics per layer, and metrics of every pair."""
        layers = {
            str(self.layer_ids[layer]): {
                **sums.means(self.losses),
                **{metric: self.sums.mean(metric, layer) for metric in METRICS},
            }
            for layer, sums in self.sums.losses.items()
        }
        pairs: list[dict[str, str | int | float]] = [
            {
                "phase": phase,
                "layer": self.layer_ids[layer],
                "consumer": self.layer_ids[consumer],
                **{metric: means[metric].mean for metric in METRICS if metric in means},
            }
            for (phase, layer, consumer), means in self.sums.pairs.items()
        ]
        return HeldOutRecord(layers=layers, pairs=pairs)


class HeldOutEvaluator:
    """Holds the held-out text of this process and the original's predictions on it."""

    def __init__(self, setup: TrainingSetup, accelerator: Accelerator) -> None:
        self._setup, self._accelerator = setup, accelerator
        size = setup.config.train.micro_batch
        batches = setup.data.splits["held_out"].batches(size, accelerator.device)
        mine = batches[accelerator.process_index :: accelerator.num_processes]
        with accelerator.autocast(), setup.plan.original(setup.model):
            self._reference = reference(setup.model, setup.native, mine)
        self._counts: Tensor | None = None

    def select_positions(self) -> None:
        """Weigh the positions as `choice` says; the undistilled arm must be in the model."""
        setup, choice = self._setup, self._setup.config.choice
        if not choice.weighs:
            return
        with self._accelerator.autocast():
            mine = arm_divergence(setup.model, setup.students, setup.plan, self._reference)
            far = choice.positions == "far"
            gain = long_range_gain(setup.model, self._reference) if far else torch.ones_like(mine)
        shares = self._gather((mine, gain))
        undistilled, gains = (torch.cat(part) for part in zip(*shares, strict=True))
        weights = Criterion.of(undistilled, choice.tail, gains).weight
        split = torch.split(weights, [len(part) for part, _ in shares])
        self._counts = split[self._accelerator.process_index]

    def evaluate(self) -> HeldOutMetrics:
        """Evaluate the students."""
        setup = self._setup
        with self._accelerator.autocast():
            local = evaluate(setup.model, setup.students, setup.plan, self._reference)
        divergence = torch.cat([torch.zeros(0), *local.divergence])
        counts = torch.ones_like(divergence) if self._counts is None else self._counts
        tail = (counts * divergence).sum().item(), counts.sum().item()
        whole = divergence.sum().item(), float(len(divergence))
        merged, sums = HeldOutSums(), [0.0] * 4
        for other, numbers in self._gather((local, (*tail, *whole))):
            merged.merge(other)
            sums = [a + b for a, b in zip(sums, numbers, strict=True)]
        return HeldOutMetrics(
            sums=merged,
            losses=tuple(entry.name for entry in setup.plan.objective.losses),
            tail_kl=sums[0] / max(sums[1], 1e-30),
            logit_kl=sums[2] / max(sums[3], 1.0),
            layer_ids=setup.schedule.layer_ids,
        )

    def _gather(self, item: T) -> list[T]:
        from accelerate.utils import gather_object

        return list(gather_object([item]))
