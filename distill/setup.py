"""What a distillation works with, loaded and checked against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from distill.config.train import MILD, DataConfig, DistillConfig
from distill.data.evaluation_prompts import evaluation_prompts
from distill.data.ngram_filter import NgramFilter
from distill.data.packing import PackedText, prepare
from distill.data.sources import prompts_of
from distill.errors import DistillError
from distill.models.causal_lm import CausalLM
from distill.models.load import (
    BaseFacts,
    base_facts,
    load_model,
    load_tokenizer,
    resolve_checkpoint,
)
from distill.models.student import Students
from distill.objective.plan import DistillPlan, make_plan
from distill.objective.teacher_assignment import trained_layers
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.families.sites import IndexerSites, indexer_sites


@dataclass(frozen=True)
class DistillSetup:
    """A recipe with its text and its plan.

    Attributes:
        config: the recipe.
        name: model directory or hub id.
        model: the original, frozen; on the meta device where no weights are loaded.
        schedule: the arm.
        trained: full layers (ordinals) whose indexers train.
        plan: query positions, teachers, losses.
        data: packed text.
        base: what identifies the model.
    """

    config: DistillConfig
    name: str
    model: CausalLM
    schedule: ReuseSchedule
    trained: tuple[int, ...]
    plan: DistillPlan
    data: PackedText
    base: BaseFacts

    @property
    def states(self) -> str:
        """Where hidden states come from."""
        return self.config.train.states

    @property
    def trained_ids(self) -> tuple[int, ...]:
        """Layer ids of the layers that train."""
        return tuple(self.schedule.layer_ids[layer] for layer in self.trained)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know before time is spent: an arm that may not need distilling."""
        if self.schedule.retention < MILD or self.plan.warm_up or self.plan.policy is not None:
            return ()
        return (
            f"retention {self.schedule.retention} is mild: distillation was neutral to harmful"
            " there (-3 to -4 points of RULER in arXiv 2611.03768); read the undistilled twin's"
            " score beside",
        )


@dataclass(frozen=True)
class TrainingSetup(DistillSetup):
    """Loaded training setup, the whole model in memory.

    Attributes:
        sites: the model's indexers.
        students: the indexers in training.
    """

    sites: IndexerSites
    students: Students

    @property
    def native(self) -> ReuseSchedule:
        """The schedule of the original."""
        return self.sites.layout.native


def load_training_setup(
    config: DistillConfig,
    base_dir: Path,
    data_dir: Path,
    *,
    device: torch.device | str = "cpu",
    first: Callable[[], bool] = lambda: True,
    wait: Callable[[], None] = lambda: None,
) -> TrainingSetup:
    """Load the model and the text of a recipe.

    Args:
        config: the recipe.
        base_dir: where its relative paths begin.
        data_dir: where packed text is kept.
        device: of the model.
        first: whether this process prepares the data; the others wait.
        wait: barrier between the processes.

    Raises:
        DistillError: something does not fit; the message says what.
    """
    name = resolve_checkpoint(config.model, base_dir)
    if not first():
        wait()
    data = pack_text(config.data, name, base_dir, data_dir, config.evaluation)
    if first():
        wait()
    model = load_model(name, config.dtype, device)
    sites = indexer_sites(model)
    schedule = config.arm.schedule(sites.layout.native)
    require_indexers(schedule, sites.layout.native)
    config.arm.require_selectable(sites.layout.topk)
    layers = trained_layers(
        schedule, config.student.first_layer, config.teacher.kind, config.arm.selection
    )
    students = Students.of_model(sites, layers, config.student.tensors)
    plan = make_plan(model, schedule, layers, config)
    require_sparse_positions(config, plan)
    return TrainingSetup(
        config=config,
        name=name,
        model=model,
        schedule=schedule,
        trained=layers,
        plan=plan,
        data=data,
        base=base_facts(name, model),
        sites=sites,
        students=students,
    )


def pack_text(
    config: DataConfig,
    name: str,
    base_dir: Path,
    data_dir: Path,
    evaluation: str | None = None,
) -> PackedText:
    """The text of a recipe as sequences of a model's tokens.

    Args:
        config: the recipe's `data`.
        name: of the model.
        base_dir: where relative paths begin.
        data_dir: where packed text is kept.
        evaluation: recipe of `evalkit run` whose prompts no document may repeat a passage of.

    Raises:
        DistillError: the source or the tokenizer is not there, or the text is too little.
    """
    tokenizer = load_tokenizer(name)
    exclude, files = None, config.exclude
    if evaluation is not None:
        files = (*files, str(evaluation_prompts(base_dir / evaluation, name, data_dir).resolve()))
    if files:
        prompts = [tokenizer.encode(text) for text in prompts_of(files, base_dir)]
        exclude = NgramFilter(prompts, config.ngram)
    return prepare(config, tokenizer, base_dir, data_dir, exclude)


def require_indexers(schedule: ReuseSchedule, native: ReuseSchedule) -> None:
    """Refuse an arm in which a layer without an indexer is full.

    Args:
        schedule: the arm.
        native: the checkpoint's own schedule.

    Raises:
        DistillError: the message names the layer.
    """
    try:
        schedule.require_indexers(native)
    except ScheduleError as error:
        raise DistillError(f"{error}; make the layer shared in the arm") from None


def require_sparse_positions(config: DistillConfig, plan: DistillPlan) -> None:
    """Refuse sequences in which no query may see more keys than it can select.

    Raises:
        DistillError: the sequences are too short.
    """
    if config.data.length <= plan.first_sparse_position:
        raise DistillError(
            f"sequences of {config.data.length} tokens never show an indexer more keys than the"
            f" {plan.first_sparse_position} it may select: every schedule is exact there; raise"
            " data.length"
        )
