"""The distillation recipe: every knob is a typed field."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from distill.config.losses import LossConfig, default_losses, losses_from_kl_share
from evalkit.config.schedule import ScheduleConfig
from evalkit.core.recipe import Strict


class TinyData(Strict):
    """Text of the small model's own generator (from a checkout of this repository).

    Attributes:
        seed: of the texts; the model itself was trained on seed 0.
    """

    kind: Literal["tiny"] = "tiny"
    seed: int = 1000


class PythonDocs(Strict):
    """English prose that every Python installation holds (`distill.data.python_docs`).

    Attributes:
        seed: order of the pages.
    """

    kind: Literal["python_docs"] = "python_docs"
    seed: int = 0


class TextData(Strict):
    """Local text: ``.txt`` (one document per file), ``.jsonl`` or ``.parquet`` (one per row).

    Attributes:
        paths: files, or glob patterns, relative to the recipe.
        column: field that holds the text.
    """

    kind: Literal["text"] = "text"
    paths: tuple[str, ...] = Field(min_length=1)
    column: str = "text"


class HubData(Strict):
    """A text set of the hub, streamed.

    Attributes:
        name: repository id.
        revision: commit or tag; pin it.
        config: configuration of the set.
        split: which split.
        column: field that holds the text.
    """

    kind: Literal["hub"] = "hub"
    name: str
    revision: str
    config: str | None = None
    split: str = "train"
    column: str = "text"


Source = Annotated[PythonDocs | TinyData | TextData | HubData, Field(discriminator="kind")]


class DataConfig(Strict):
    """The text and how it becomes sequences.

    Attributes:
        source: where it comes from.
        length: tokens of a sequence.
        train: sequences to train on; used again in another order when they run out.
        held_out: sequences for the held-out metrics and for the choice of the checkpoint.
        calibration: sequences for the closed form: sums and choice of candidates.
        pack: ``single`` keeps every sequence within one document (long ones are cut, the end is
            padded); ``join`` fills sequences with whole documents, an end-of-text token between.
        shortest: documents or cuts below this many tokens are left out (``single``).
        exclude: JSONL files of prompts (field ``text``) that no document may repeat a passage of,
            besides those of the recipe's own evaluation.
        ngram: length of the token n-grams compared with those prompts.
    """

    source: Source = PythonDocs()
    length: int = Field(default=512, ge=8)
    train: int = Field(default=256, ge=1)
    held_out: int = Field(default=16, ge=1)
    calibration: int = Field(default=12, ge=1)
    pack: Literal["single", "join"] = "single"
    shortest: int = Field(default=64, ge=2)
    exclude: tuple[str, ...] = ()
    ngram: int = Field(default=13, ge=4)

    @model_validator(mode="after")
    def _some_fit(self) -> DataConfig:
        if self.pack == "single" and self.shortest > self.length:
            raise ValueError(
                f"shortest is {self.shortest}, length {self.length}: no sequence can be both"
            )
        return self


class StudentConfig(Strict):
    """What trains, and from where.

    Attributes:
        start: ``closed_form`` (a consumer's indexer re-expressed on this layer's inputs),
            ``own`` (the full layer's indexer as it is) or ``random``.
        first_layer: ``keep`` leaves the first full layer's indexer as it is, ``train`` does not,
            ``auto`` trains it with the others and then keeps it as trained or as it came, whichever
            is better by `choice.checkpoint` on held-out text.
        tensors: first names of the indexer's tensors that train (``wq_b`` …); empty: all.
    """

    start: Literal["closed_form", "own", "random"] = "closed_form"
    first_layer: Literal["keep", "train", "auto"] = "keep"
    tensors: tuple[str, ...] = ()


class TeacherConfig(Strict):
    """Who teaches.

    Attributes:
        kind: ``indexer`` (the consumers' frozen indexers), ``attention`` (what the consumers
            really attended to, summed over heads) or ``attention_dense`` (the same over every
            visible key). In an arm that reuses nothing, attention teaches the layer itself: a
            warm-up, with ``attention_dense`` of a model that attends densely.
        combine: ``mean`` of the losses to each consumer, or the loss to their ``mixture``.
    """

    kind: Literal["indexer", "attention", "attention_dense"] = "indexer"
    combine: Literal["mean", "mixture"] = "mean"


class QueriesConfig(Strict):
    """Which query positions train.

    Attributes:
        per_sequence: query positions per sequence and phase.
        decode_share: for schedules with a lag in decode only, the share of them that are decode
            positions.
        chunk_elements: upper bound of one [B, queries, T] block of scores; memory, not numbers.
    """

    per_sequence: int = Field(default=64, ge=1)
    decode_share: float = Field(default=0.5, gt=0, lt=1)
    chunk_elements: int = Field(default=2**22, ge=1)


class ClosedFormConfig(Strict):
    """Closed-form start.

    Attributes:
        ridge: ρ, relative to the mean of the inputs' squares.
        rounds: passes over the full layers in depth order; later ones choose again.
    """

    ridge: float = Field(default=1e-2, gt=0)
    rounds: int = Field(default=1, ge=1)


class ChoiceConfig(Strict):
    """How candidates of the closed form and checkpoints are chosen, on text without labels.

    Attributes:
        positions: ``far`` counts a position by how far the original's prediction moves when every
            indexer selects the latest keys only (`distill.validation.long_range`); ``all`` counts
            them evenly.
        tail: share of the positions that count at all: those where the undistilled arm's
            predictions are farthest from the original's.
        checkpoint: the measure on held-out text that keeps a checkpoint.
    """

    positions: Literal["far", "all"] = "far"
    tail: float = Field(default=1.0, gt=0, le=1)
    checkpoint: Literal["logit_kl", "recall"] = "logit_kl"

    @property
    def weighs(self) -> bool:
        """Whether positions count unlike."""
        return self.positions == "far" or self.tail < 1


class TrainConfig(Strict):
    """The gradient stage.

    Attributes:
        steps: optimiser steps; 0 ends with the start.
        states: ``on_policy`` takes hidden states from the forward under the arm's schedule with
            the current students, ``off_policy`` from the original forward.
        batch: sequences per step, over all processes.
        micro_batch: sequences per forward.
        lr: peak learning rate (AdamW).
        warmup_steps: linear warm-up to the peak.
        decay_ratio: last share of the steps, in which the rate falls linearly to `min_lr_ratio`.
        min_lr_ratio: learning rate at the end, as a share of the peak.
        weight_decay: of AdamW.
        max_grad_norm: bound of the gradient norm of one full layer's indexer; 0 turns it off.
        seed: of query positions, order of the text, prompt lengths and random starts.
        precision: ``no``, ``bf16`` or ``fp16`` autocast of the forwards; scores are fp32.
        evaluate_every: steps between evaluations on the held-out text.
        patience: evaluations without improvement before training stops; 0 turns it off.
        save_every: steps between resumable states.
        trackers: accelerate trackers (tensorboard, wandb, trackio); metrics.jsonl is always there.
    """

    steps: int = Field(default=120, ge=0)
    states: Literal["on_policy", "off_policy"] = "on_policy"
    batch: int = Field(default=4, ge=1)
    micro_batch: int = Field(default=4, ge=1)
    lr: float = Field(default=1e-3, gt=0)
    warmup_steps: int = Field(default=10, ge=0)
    decay_ratio: float = Field(default=0.4, ge=0, le=1)
    min_lr_ratio: float = Field(default=0.02, ge=0, le=1)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, ge=0)
    seed: int = 0
    precision: Literal["no", "bf16", "fp16"] = "no"
    evaluate_every: int = Field(default=20, ge=1)
    patience: int = Field(default=0, ge=0)
    save_every: int = Field(default=20, ge=1)
    trackers: tuple[str, ...] = ()


class DistillConfig(Strict):
    """A whole distillation.

    Attributes:
        model: checkpoint (directory relative to the recipe, or hub id).
        dtype: weights and activations of the frozen model.
        evaluation: evaluation recipe in which the arm and its undistilled twin are compared.
        licence: of the base model, for the card.
        arm: schedule and selection that the students are to serve.
    """

    renamed: ClassVar = {
        "student.first": "student.first_layer",
        "loss.rows": "queries.per_sequence",
        "loss.decode_share": "queries.decode_share",
        "loss.chunk_elements": "queries.chunk_elements",
        "train.warmup": "train.warmup_steps",
        "train.decay": "train.decay_ratio",
        "train.floor": "train.min_lr_ratio",
        "train.clip": "train.max_grad_norm",
    }

    model: str
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    evaluation: str | None = None
    licence: str = "unknown"
    arm: ScheduleConfig
    data: DataConfig = DataConfig()
    student: StudentConfig = StudentConfig()
    teacher: TeacherConfig = TeacherConfig()
    loss: tuple[LossConfig, ...] = Field(default_factory=default_losses)
    queries: QueriesConfig = QueriesConfig()
    closed_form: ClosedFormConfig = ClosedFormConfig()
    choice: ChoiceConfig = ChoiceConfig()
    train: TrainConfig = TrainConfig()

    @classmethod
    def upgrade(cls, data: dict[str, Any]) -> list[tuple[str, str]]:
        """Also turn the `[loss]` section of 0.1 into `[[loss]]` entries."""
        used = super().upgrade(data)
        section = data.get("loss")
        if isinstance(section, dict):
            used += [("loss.kl_share", "[[loss]] with kind and weight")] * ("kl_share" in section)
            data["loss"] = losses_from_kl_share(section)
        return used

    @model_validator(mode="after")
    def _selection_shows(self) -> DistillConfig:
        selection = self.arm.selection
        if selection is not None and selection.reuse is not None:
            raise ValueError(
                f"arm.selection {selection.text}: it acts from one decode step to the next, and"
                " training reads whole texts; leave it out here and name it in the evaluation"
            )
        return self

    @model_validator(mode="after")
    def _losses_train(self) -> DistillConfig:
        kinds = [entry.kind for entry in self.loss]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"loss: give each kind once, got {', '.join(kinds)}")
        if not any(entry.weight > 0 for entry in self.loss):
            raise ValueError("loss: no loss has a weight above 0, so that nothing would train")
        return self


MILD = Fraction(1, 4)
"""Retentions from here on may need no distillation."""
