"""What a layer-by-layer distillation works with, fixed from beginning to end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import cast

import torch

from distill.checkpoint.sharded import Checkpoint
from distill.config.train import DistillConfig
from distill.data.batch import Batch
from distill.data.sampler import Sampler
from distill.errors import DistillError
from distill.layerwise.dump import Dump
from distill.layerwise.layer_loader import Layers
from distill.layerwise.tensor_store import TensorStore
from distill.models.load import base_facts, resolve_checkpoint
from distill.models.sizes import meta_model
from distill.objective.plan import make_plan
from distill.objective.query_sampling import has_two_phases
from distill.objective.teacher_assignment import trained_layers
from distill.setup import DistillSetup, pack_text, require_indexers, require_sparse_positions

STORE, STORE_OF_0_1 = "hidden_states", "shelf"


@dataclass(frozen=True)
class LayerwiseSetup(DistillSetup):
    """Loaded training setup without the model in memory: `model` is on the meta device.

    Attributes:
        layers: the decoder layers, one at a time.
        store: what lies on disk meanwhile.
        device: where layers run.
        dump: hidden states of the original that ran elsewhere; then no layer runs here.
    """

    layers: Layers
    store: TensorStore
    device: torch.device
    dump: Dump | None = None

    @property
    def states(self) -> str:
        """Where hidden states come from."""
        return super().states if self.dump is None else f"{super().states} (dumped)"

    @cached_property
    def batches(self) -> dict[str, Batch]:
        """Every batch of text that goes through the original, by a name such as ``train/0``."""
        size, batches = self.config.train.micro_batch, dict[str, Batch]()
        drawn = {self.place(number)[0] for number in self.numbers}
        for split in ("calibration", "held_out", "train"):
            if split == "calibration" and self.config.student.start != "closed_form":
                continue
            for i, batch in enumerate(self.data.splits[split].batches(size)):
                if split != "train" or f"train/{i}" in drawn:
                    batches[f"{split}/{i}"] = batch
        return batches

    def sequences(self, name: str) -> list[str]:
        """Names of a batch's sequences, ``<split>/<number>``."""
        split, batch = name.partition("/")[0], self.batches[name]
        return [f"{split}/{number}" for number in batch.own_draws]

    def split(self, name: str) -> dict[str, Batch]:
        """The batches of one split."""
        return {n: b for n, b in self.batches.items() if n.startswith(f"{name}/")}

    @property
    def drawn_apart(self) -> bool:
        """Whether a sequence differs from draw to draw: under a lag by its prompt length."""
        return self.plan.on_policy and has_two_phases(self.schedule)

    @cached_property
    def carried(self) -> dict[str, Batch]:
        """Every batch that goes through the arm; training text where states are on-policy."""
        if self.dump is not None:
            return {}
        batches = {n: b for n, b in self.batches.items() if not n.startswith("train/")}
        if not self.plan.on_policy:
            return batches
        if not self.drawn_apart:
            return self.batches
        size = self.config.train.micro_batch
        for first in range(0, len(self.numbers), size):
            batch = self.data.splits["train"].batch(self.numbers[first : first + size])
            batches[f"draw/{first // size}"] = replace(batch, first=first)
        return batches

    @property
    def compared(self) -> dict[str, Batch]:
        """Text on which candidates and checkpoints are compared by final logits."""
        if self.dump is not None:
            return {}
        held_out = self.split("held_out") if self.config.choice.checkpoint == "logit_kl" else {}
        return self.split("calibration") | held_out

    @cached_property
    def numbers(self) -> list[int]:
        """Training sequence of every draw, in the trainer's order."""
        sampler = Sampler(len(self.data.splits["train"]), self.config.train.seed)
        return [sampler[draw] for draw in range(self.config.train.steps * self.config.train.batch)]

    @cached_property
    def draws_of(self) -> dict[int, list[int]]:
        """Draws by training sequence."""
        draws: dict[int, list[int]] = {}
        for draw, number in enumerate(self.numbers):
            draws.setdefault(number, []).append(draw)
        return draws

    def place(self, number: int) -> tuple[str, int]:
        """Batch name and row of a training sequence."""
        batch, row = divmod(number, self.config.train.micro_batch)
        return f"train/{batch}", row

    def place_of_draw(self, draw: int) -> tuple[str, int]:
        """Batch name and row in which a draw meets the layer that trains."""
        if not self.drawn_apart:
            return self.place(self.numbers[draw])
        batch, row = divmod(draw, self.config.train.micro_batch)
        return f"draw/{batch}", row

    def teachers(self, layer: int) -> set[int]:
        """Layers whose indexers teach a full layer."""
        return self.plan.assignment.indexers_for(layer)

    @cached_property
    def layers_read(self) -> frozenset[int]:
        """Layers (ordinals) of the original whose indexer calls the training needs."""
        return frozenset(self.trained).union(*map(self.teachers, self.trained))

    def taught_by(self, teacher: int) -> list[int]:
        """Full layers that a layer teaches."""
        return [f for f in self.trained if teacher in self.teachers(f)]


def load_layerwise_setup(
    config: DistillConfig,
    base_dir: Path,
    out: Path,
    device: torch.device | str = "cpu",
    dump: Path | None = None,
) -> LayerwiseSetup:
    """Read configuration and text of a recipe; no weight is loaded.

    Args:
        config: the recipe.
        base_dir: where its relative paths begin.
        out: directory of the run.
        device: where layers run.
        dump: see `LayerwiseSetup`.

    Raises:
        DistillError: something does not fit, or the recipe asks for what needs the whole model.
    """
    _refuse_whole_model_options(config)
    if dump is not None:
        _refuse_running_options(config)
    name = resolve_checkpoint(config.model, base_dir)
    data = pack_text(config.data, name, base_dir, out / "data", config.evaluation)
    checkpoint = Checkpoint(name)
    layers = Layers(checkpoint, dtype_of(config, checkpoint), torch.device(device))
    native = layers.layout.native
    schedule = config.arm.schedule(native)
    config.arm.require_selectable(layers.layout.topk)
    trained = trained_layers(schedule, config.student.first_layer, policy=config.arm.selection)
    require_indexers(schedule, native)
    model = meta_model(layers.config)
    plan = make_plan(model, schedule, trained, config)
    require_sparse_positions(config, plan)
    if (out / STORE_OF_0_1).is_dir():  # a run that 0.1 began goes on
        (out / STORE_OF_0_1).rename(out / STORE)
    base = base_facts(name, model)
    dumped = None if dump is None else Dump(dump)
    if dumped is not None:
        dumped.require(base, data.sha256, dtype_of(config, checkpoint))
    return LayerwiseSetup(
        config=config,
        name=name,
        model=model,
        schedule=schedule,
        trained=trained,
        plan=plan,
        data=data,
        base=base,
        layers=layers,
        store=TensorStore(out / STORE),
        device=torch.device(device),
        dump=dumped,
    )


def _refuse_whole_model_options(config: DistillConfig) -> None:
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
            "train.patience: layer by layer final logits are known only after the last step; set"
            " choice.checkpoint = 'recall', or patience = 0"
        )
    if config.student.first_layer == "auto":
        raise DistillError(
            "student.first_layer 'auto': layer by layer the first full layer is finished before the"
            " others train, and cannot be taken back; set 'keep' or 'train'"
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


def _refuse_running_options(config: DistillConfig) -> None:
    """Refuse what needs the arm to run, where there is a dump of the original alone."""
    if config.train.states != "off_policy":
        raise DistillError(
            "train.states on_policy: a dump holds the original's hidden states, and the arm does"
            " not run; set 'off_policy'"
        )
    if config.choice.checkpoint != "recall":
        raise DistillError(
            "choice.checkpoint logit_kl: final logits need every layer to run, and from a dump none"
            " does; set 'recall'"
        )


def default_device() -> str:
    """The accelerator that is there, else cpu."""
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None:
            return accelerator.type
    return "cpu"


def dtype_of(config: DistillConfig, checkpoint: Checkpoint) -> torch.dtype:
    """Precision of the layers: the recipe's, or the checkpoint's own (bf16 for FP8)."""
    if config.dtype != "auto":
        named = {"float32": torch.float32, "float16": torch.float16}
        return named.get(config.dtype, torch.bfloat16)
    stored = checkpoint.config.get("dtype") or checkpoint.config.get("torch_dtype") or "bfloat16"
    return cast(torch.dtype, getattr(torch, str(stored).removeprefix("torch.")))
