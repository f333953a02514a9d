"""`distill train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distill.cli.common import (
    Out,
    Recipe,
    SaveAnyway,
    Set,
    end_without_gain,
    load_recipe,
    run_directory,
)
from distill.errors import DistillError, first_line
from evalkit.core.console import open_console

if TYPE_CHECKING:
    from accelerate import Accelerator

    from distill.config.train import DistillConfig


def train(
    recipe: Recipe,
    out: Out = None,
    set_: Set = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Then run the recipe's evaluation.")
    ] = False,
    save_anyway: SaveAnyway = False,
) -> None:
    """Initialise, train, select a checkpoint; the same command resumes an interrupted run."""
    from distill.setup import load_training_setup
    from distill.training import evaluation_recipe, fsdp
    from distill.training.artifacts import save
    from distill.training.progress_bar import CANDIDATES, STEPS, ProgressDisplay
    from distill.training.trainer import Trainer

    config, directory = load_recipe(recipe, set_), run_directory(recipe, out)
    base_dir = recipe.resolve().parent
    evaluation_recipe.check(config, base_dir)
    accelerator = make_accelerator(config, directory)
    console = open_console(quiet=not accelerator.is_main_process)
    setup = load_training_setup(
        config,
        base_dir,
        directory / "data",
        device="cpu" if fsdp.wanted() else accelerator.device,
        first=lambda: accelerator.is_local_main_process,
        wait=accelerator.wait_for_everyone,
    )
    if fsdp.wanted():
        fsdp.shard(setup, accelerator.device)
    bars = {STEPS: config.train.steps}
    if config.student.start == "closed_form":
        bars = {CANDIDATES: len(setup.trained) * config.closed_form.rounds} | bars
    with ProgressDisplay(setup, console, bars) as display:
        trainer = Trainer(setup, directory, accelerator, display.on_event)
        trainer.run()
    if config.train.trackers:
        accelerator.end_training()
    state, measure = trainer.state, config.choice.checkpoint
    if accelerator.is_main_process:
        display.summary(state)
    if not (save_anyway or state.gains(measure)):
        end_without_gain(state, measure)
    if accelerator.is_main_process:
        indexer = save(setup, trainer.best, state, directory)
        console.print(f"indexers: {indexer}")
        if config.evaluation is not None:
            command = evaluation_recipe.command(config, setup.name, base_dir, indexer, directory)
            if evaluate:
                evaluation_recipe.run(command)
            else:
                console.print("evaluate with --evaluate", style="dim")


def make_accelerator(config: DistillConfig, out: Path) -> Accelerator:
    """The accelerator of a recipe, its trackers begun.

    Raises:
        DistillError: a precision or tracker is not to be had here.
    """
    from accelerate import Accelerator

    wanted = list(config.train.trackers)
    try:
        accelerator = Accelerator(
            mixed_precision=config.train.precision,
            log_with=wanted or None,
            project_dir=str(out),
        )
    except ValueError as error:
        raise DistillError(f"train: {first_line(error)}") from None
    missing = set(wanted) - {str(tracker) for tracker in accelerator.log_with}
    if missing:
        raise DistillError(
            f"train.trackers: {', '.join(sorted(missing))} is not installed; metrics.jsonl is"
            " always written"
        )
    if config.train.trackers:
        accelerator.init_trackers("distill", config={"recipe": config.model_dump_json()})
    return accelerator
