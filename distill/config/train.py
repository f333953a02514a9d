"""The distillation recipe: every knob is a typed field."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from distill.errors import DistillError
from evalkit.config.schedule import ScheduleConfig
from evalkit.core.recipe import Strict


class TinyData(Strict):
    """Text of the small model's own generator (from a checkout of this repository).

    Attributes:
        seed: of the texts; the model itself was trained on seed 0.
    """

    kind: Literal["tiny"] = "tiny"
    seed: int = 1000


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


Source = Annotated[TinyData | TextData | HubData, Field(discriminator="kind")]


class DataConfig(Strict):
    """The text and how it becomes sequences.

    Attributes:
        source: where it comes from.
        length: tokens of a sequence.
        train: sequences to train on; used again in another order when they run out.
        held_out: sequences for probes and for the choice of the checkpoint.
        calibration: sequences for the closed form: sums and choice of candidates.
        pack: ``single`` keeps every sequence within one document (long ones are cut, the end is
            padded); ``join`` fills sequences with whole documents, an end-of-text token between.
        shortest: documents or cuts below this many tokens are left out (``single``).
        exclude: JSONL files of evaluation prompts (field ``text``) that no document may repeat a
            passage of.
        ngram: length of the token n-grams compared with those prompts.
    """

    source: Source = TinyData()
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
        first: ``keep`` leaves the first full layer's indexer alone, ``train`` does not.
        tensors: first names of the indexer's tensors that train (``wq_b`` …); empty: all.
    """

    start: Literal["closed_form", "own", "random"] = "closed_form"
    first: Literal["keep", "train"] = "keep"
    tensors: tuple[str, ...] = ()


class TeacherConfig(Strict):
    """Who teaches.

    Attributes:
        kind: ``indexer`` (the consumers' frozen indexers), ``attention`` (what the consumers
            really attended to, summed over heads) or ``attention_dense`` (the same over every
            visible key).
        combine: ``mean`` of the losses to each consumer, or the loss to their ``mixture``.
    """

    kind: Literal["indexer", "attention", "attention_dense"] = "indexer"
    combine: Literal["mean", "mixture"] = "mean"


class LossConfig(Strict):
    """λ·KL + (1−λ)·ListMLE on sampled query rows.

    Attributes:
        kl_share: λ.
        list_length: m of ListMLE, in multiples of the model's index_topk.
        positions: weights of the list's positions.
        band: half width of the band around the border, in multiples of index_topk.
        rows: query rows per sequence and phase.
        decode_share: for schedules with a lag in decode only, the share of the rows that are
            decode rows.
        chunk_elements: upper bound of one [B, rows, T] block of scores.
    """

    kl_share: float = Field(default=1.0, ge=0, le=1)
    list_length: float = Field(default=2.0, gt=0)
    positions: Literal["uniform", "discount", "band"] = "uniform"
    band: float = Field(default=0.5, gt=0)
    rows: int = Field(default=64, ge=1)
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
        tail: share of the positions that count: those where the undistilled arm's predictions are
            farthest from the original's.
        checkpoint: the measure on held-out text that keeps a checkpoint.
    """

    tail: float = Field(default=1.0, gt=0, le=1)
    checkpoint: Literal["logit_kl", "recall"] = "logit_kl"


class TrainConfig(Strict):
    """The gradient stage.

    Attributes:
        steps: optimiser steps; 0 ends with the start.
        states: ``on_policy`` takes hidden states from the forward under the arm's schedule with
            the current students, ``off_policy`` from the original forward.
        batch: sequences per step, over all processes.
        micro_batch: sequences per forward.
        lr: peak learning rate (AdamW).
        warmup: steps to the peak.
        decay: last share of the steps, in which the rate falls to `floor` of the peak.
        floor: see `decay`.
        weight_decay: of AdamW.
        clip: bound of the gradient norm of one full layer's indexer; 0 turns it off.
        seed: of rows, order of the text, prompt boundaries and random starts.
        precision: ``no``, ``bf16`` or ``fp16`` autocast of the forwards; scores are fp32.
        evaluate_every: steps between looks at the held-out text.
        patience: looks without improvement before training stops; 0 turns it off.
        save_every: steps between resumable states.
        trackers: accelerate trackers (tensorboard, wandb, trackio); metrics.jsonl is always there.
    """

    steps: int = Field(default=120, ge=0)
    states: Literal["on_policy", "off_policy"] = "on_policy"
    batch: int = Field(default=4, ge=1)
    micro_batch: int = Field(default=4, ge=1)
    lr: float = Field(default=1e-3, gt=0)
    warmup: int = Field(default=10, ge=0)
    decay: float = Field(default=0.4, ge=0, le=1)
    floor: float = Field(default=0.02, ge=0, le=1)
    weight_decay: float = Field(default=0.0, ge=0)
    clip: float = Field(default=1.0, ge=0)
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
        arm: the schedule that the students are to serve.
    """

    model: str
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    evaluation: str | None = None
    licence: str = "unknown"
    arm: ScheduleConfig
    data: DataConfig = DataConfig()
    student: StudentConfig = StudentConfig()
    teacher: TeacherConfig = TeacherConfig()
    loss: LossConfig = LossConfig()
    closed_form: ClosedFormConfig = ClosedFormConfig()
    choice: ChoiceConfig = ChoiceConfig()
    train: TrainConfig = TrainConfig()


MILD = Fraction(1, 4)


def resolve_model(name: str, base_dir: Path) -> str:
    """A model directory relative to the recipe as an absolute path; anything else is a hub id.

    Raises:
        DistillError: it looks like a path and is not there.
    """
    path = Path(name).expanduser()
    candidate = path if path.is_absolute() else base_dir / path
    if candidate.is_dir():
        return str(candidate.resolve())
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise DistillError(f"model {name}: no such directory ({candidate})")
    return name
