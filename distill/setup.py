"""Everything a distillation works with, loaded and checked against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.config.train import MILD, DistillConfig, resolve_model
from distill.data.packing import Forbidden, Sequences, prepare
from distill.data.sources import prompts_of
from distill.errors import DistillError
from distill.models.load import base_facts, load_model, load_tokenizer, trained_layers
from distill.models.student import Students
from distill.objective.plan import Plan, make_plan
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.families.sites import IndexerSites, indexer_sites


@dataclass(frozen=True, slots=True)
class Session:
    """A recipe made real.

    Attributes:
        config: the recipe.
        name: model directory or hub id.
        model: the original, frozen.
        where: its indexers.
        schedule: the arm.
        students: the indexers in training.
        plan: rows, teachers, loss.
        data: packed text.
        base: facts of the model.
        warnings: what the user should know before time is spent.
    """

    config: DistillConfig
    name: str
    model: Any
    where: IndexerSites
    schedule: ReuseSchedule
    students: Students
    plan: Plan
    data: Sequences
    base: dict[str, Any]
    warnings: tuple[str, ...]


def open_session(
    config: DistillConfig,
    base_dir: Path,
    data_dir: Path,
    *,
    device: Any = "cpu",
    first: Callable[[], bool] = lambda: True,
    wait: Callable[[], None] = lambda: None,
) -> Session:
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
    name = resolve_model(config.model, base_dir)
    tokenizer = load_tokenizer(name)
    if not first():
        wait()
    data = prepare(
        config.data, tokenizer, base_dir, data_dir, forbidden(config, tokenizer, base_dir)
    )
    if first():
        wait()
    model = load_model(name, config.dtype, device)
    where = indexer_sites(model)
    schedule = config.arm.schedule(where.layout.native)
    layers = trained_layers(schedule, config.student.first)
    missing = [i for i in layers if where.owners[i].indexer is None]
    if missing:
        raise DistillError(
            f"layer {where.layout.layer_ids[missing[0]]} is full in the arm, but the checkpoint has"
            " no indexer there: it can be made sparser, never denser"
        )
    students = Students(where, layers)
    if config.student.tensors:
        students.freeze_except(config.student.tensors)
    plan = make_plan(model, schedule, layers, config)
    if config.data.length <= plan.first:
        raise DistillError(
            f"sequences of {config.data.length} tokens never show an indexer more keys than the"
            f" {plan.first} it may select: every schedule is exact there; raise data.length"
        )
    return Session(
        config, name, model, where, schedule, students, plan, data,
        base_facts(name, model), warnings_for(schedule),
    )  # fmt: skip


def forbidden(config: DistillConfig, tokenizer: Any, base_dir: Path) -> Forbidden | None:
    """The n-grams that the text must not contain."""
    if not config.data.exclude:
        return None
    prompts: list[Sequence[int]] = [
        tokenizer.encode(text) for text in prompts_of(config.data.exclude, base_dir)
    ]
    return Forbidden(prompts, config.data.ngram)


def warnings_for(schedule: ReuseSchedule) -> tuple[str, ...]:
    """Advice against distilling an arm that may not need it."""
    if schedule.retention < MILD:
        return ()
    return (
        f"retention {schedule.retention} is mild: distillation was neutral to harmful there"
        " (-3 to -4 points of RULER in arXiv 2611.03768); read the undistilled twin's score beside",
    )
