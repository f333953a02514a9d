"""What a layer-by-layer distillation works with, fixed from beginning to end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from distill.checkpoint.sharded import Checkpoint
from distill.config.train import DistillConfig, resolve_model
from distill.data.batch import Batch
from distill.data.packing import Sequences, prepare
from distill.errors import DistillError
from distill.layerwise.layer_loader import Layers
from distill.layerwise.tensor_store import Shelf
from distill.models.load import load_tokenizer, trained_layers
from distill.models.sizes import without_memory
from distill.objective.plan import Plan, make_plan
from distill.objective.query_sampling import generator, two_phases
from distill.setup import forbidden, warnings_for
from evalkit.dsa import Phase, ReuseSchedule

PHASES: tuple[Phase, ...] = ("prefill", "decode")


@dataclass(frozen=True)
class Job:
    """A recipe made real without its model in memory.

    Attributes:
        config: the recipe.
        name: model directory or hub id.
        layers: the model, one layer at a time.
        meta: the whole model without memory.
        schedule: the arm.
        trained: ordinals whose indexers train.
        plan: rows, teachers, loss.
        data: packed text.
        shelf: what lies on disk meanwhile.
        device: where layers run.
    """

    config: DistillConfig
    name: str
    layers: Layers
    meta: Any
    schedule: ReuseSchedule
    trained: tuple[int, ...]
    plan: Plan
    data: Sequences
    shelf: Shelf
    device: torch.device

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know before time is spent."""
        return warnings_for(self.schedule)

    @cached_property
    def batches(self) -> dict[str, Batch]:
        """Every batch of text that goes through the original, by a name such as ``train/0``."""
        size, found = self.config.train.micro_batch, dict[str, Batch]()
        drawn = {self.place(number)[0] for number in self.numbers}
        for split in ("calibration", "held_out", "train"):
            if split == "calibration" and self.config.student.start != "closed_form":
                continue
            for i, batch in enumerate(self.data.splits[split].batches(size)):
                if split != "train" or f"train/{i}" in drawn:
                    found[f"{split}/{i}"] = batch
        return found

    @property
    def drawn_apart(self) -> bool:
        """Whether a sequence differs from draw to draw: under a lag by its prompt boundary."""
        return self.plan.on_policy and two_phases(self.schedule)

    @cached_property
    def carried(self) -> dict[str, Batch]:
        """Every batch that goes through the arm; training text where states are on-policy."""
        found = {n: b for n, b in self.batches.items() if not n.startswith("train/")}
        if not self.plan.on_policy:
            return found
        if not self.drawn_apart:
            return self.batches
        size = self.config.train.micro_batch
        for first in range(0, len(self.numbers), size):
            batch = self.data.splits["train"].batch(self.numbers[first : first + size])
            found[f"draw/{first // size}"] = replace(batch, first=first)
        return found

    @property
    def judged(self) -> dict[str, Batch]:
        """Text on which candidates and checkpoints are compared by final logits."""
        splits = ["calibration/"] + ["held_out/"] * (self.config.choice.checkpoint == "logit_kl")
        return {n: b for n, b in self.batches.items() if n.startswith(tuple(splits))}

    @cached_property
    def numbers(self) -> list[int]:
        """Training sequence of every draw, in the trainer's order."""
        count, found = len(self.data.splits["train"]), list[int]()
        draws, seed = self.config.train.steps * self.config.train.batch, self.config.train.seed
        while len(found) < draws:
            mixed = torch.randperm(count, generator=generator(seed, len(found) // count, 4))
            found += mixed.tolist()
        return found[:draws]

    @cached_property
    def draws_of(self) -> dict[int, list[int]]:
        """Draws by training sequence."""
        found: dict[int, list[int]] = {}
        for draw, number in enumerate(self.numbers):
            found.setdefault(number, []).append(draw)
        return found

    def place(self, number: int) -> tuple[str, int]:
        """Batch name and row of a training sequence."""
        batch, row = divmod(number, self.config.train.micro_batch)
        return f"train/{batch}", row

    def seen_at(self, draw: int) -> tuple[str, int]:
        """Batch name and row in which a draw meets the layer that trains."""
        if not self.drawn_apart:
            return self.place(self.numbers[draw])
        batch, row = divmod(draw, self.config.train.micro_batch)
        return f"draw/{batch}", row

    def teachers(self, layer: int) -> set[int]:
        """Layers whose indexers teach a full layer."""
        return self.plan.lessons.of_layer(layer)

    def taught_by(self, teacher: int) -> list[int]:
        """Full layers that a layer teaches."""
        return [f for f in self.trained if teacher in self.teachers(f)]


def open_job(
    config: DistillConfig, base_dir: Path, out: Path, device: torch.device | str = "cpu"
) -> Job:
    """Read configuration and text of a recipe; no weight is loaded.

    Raises:
        DistillError: something does not fit, or the recipe asks for what needs the whole model.
    """
    if config.teacher.kind != "indexer":
        raise DistillError(
            f"teacher.kind {config.teacher.kind}: layer by layer the consumers' indexers teach"
        )
    if config.closed_form.rounds > 1:
        raise DistillError(
            "closed_form.rounds: layer by layer every full layer is visited once; leave it at 1"
        )
    if config.train.patience and config.choice.checkpoint == "logit_kl":
        raise DistillError(
            "train.patience: layer by layer final logits are known behind the last step only; set"
            " choice.checkpoint = 'recall', or patience = 0"
        )
    if config.train.precision != "no":
        raise DistillError(
            f"train.precision {config.train.precision}: layer by layer everything runs in `dtype`;"
            " leave it at 'no'"
        )
    if config.train.trackers:
        raise DistillError(
            "train.trackers: layer by layer only metrics.jsonl is written; name none"
        )
    name = resolve_model(config.model, base_dir)
    tokenizer = load_tokenizer(name)
    avoid = forbidden(config, tokenizer, base_dir)
    data = prepare(config.data, tokenizer, base_dir, out / "data", avoid)
    checkpoint = Checkpoint(name)
    where = torch.device(device)
    layers = Layers(checkpoint, dtype_of(config, checkpoint), where)
    schedule = config.arm.schedule(layers.layout.native)
    trained = trained_layers(schedule, config.student.first)
    missing = [f for f in schedule.full_layers if not layers.layout.native.computes[f]]
    if missing:
        raise DistillError(
            f"layer {missing[0]} is full in the arm, but the checkpoint has no indexer there: it"
            " can be made sparser, never denser"
        )
    meta = without_memory(layers.config)
    plan = make_plan(meta, schedule, trained, config)
    if config.data.length <= plan.first:
        raise DistillError(
            f"sequences of {config.data.length} tokens never show an indexer more keys than the"
            f" {plan.first} it may select; raise data.length"
        )
    return Job(
        config, name, layers, meta, schedule, trained, plan, data, Shelf(out / "shelf"), where
    )


def dtype_of(config: DistillConfig, checkpoint: Checkpoint) -> torch.dtype:
    """Precision of the layers: the recipe's, or the checkpoint's own (bf16 for FP8)."""
    if config.dtype != "auto":
        return {"float32": torch.float32, "float16": torch.float16}.get(
            config.dtype, torch.bfloat16
        )
    stored = checkpoint.config.get("dtype") or checkpoint.config.get("torch_dtype") or "bfloat16"
    found: torch.dtype = getattr(torch, str(stored).removeprefix("torch."))
    return found
