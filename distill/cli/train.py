"""`distill train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distill.cli.common import Out, Recipe, Set, load_recipe, run_directory
from distill.errors import EvalkitError
from evalkit.core.console import open_console

if TYPE_CHECKING:
    from distill.config.train import DistillConfig


def train(
    recipe: Recipe,
    out: Out = None,
    set_: Set = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Then run the recipe's evaluation.")
    ] = False,
) -> None:
    """Distil an arm: start, gradient, choice; the same command resumes an interrupted run."""
    from distill.setup import open_session
    from distill.training import evaluation_recipe, fsdp
    from distill.training.artifacts import save
    from distill.training.progress_bar import Screen
    from distill.training.trainer import Trainer

    config, where = load_recipe(recipe, set_), run_directory(recipe, out)
    evaluation_recipe.check(config, recipe.resolve().parent)
    accelerator = _accelerator(config, where)
    console = open_console(quiet=not accelerator.is_main_process)
    session = open_session(
        config, recipe.resolve().parent, where / "data",
        device="cpu" if fsdp.wanted() else accelerator.device,
        first=lambda: accelerator.is_local_main_process,
        wait=accelerator.wait_for_everyone,
    )  # fmt: skip
    if fsdp.wanted():
        fsdp.shard(session, accelerator.device)
    for warning in session.warnings:
        console.print(f"warning: {warning}", style="yellow")
    with Screen(session, console) as screen:
        trainer = Trainer(session, where, accelerator, screen.on_event)
        trainer.run()
    if accelerator.is_main_process:
        directory = save(session, trainer.best, trainer.progress, where)
        screen.summary(trainer.progress)
        console.print(f"indexers: {directory}")
        if config.evaluation is not None:
            command = evaluation_recipe.command(
                config, session.name, recipe.resolve().parent, directory, where
            )
            if evaluate:
                evaluation_recipe.run(command)
            else:
                console.print("evaluate with --evaluate", style="dim")
    if config.train.trackers:
        accelerator.end_training()


def _accelerator(config: DistillConfig, out: Path) -> Any:
    from accelerate import Accelerator

    wanted = list(config.train.trackers)
    try:
        accelerator = Accelerator(
            mixed_precision=config.train.precision,
            log_with=wanted or None,
            project_dir=str(out),
        )
    except ValueError as error:  # a precision or tracker that is not to be had here
        raise EvalkitError(f"train: {str(error).splitlines()[0]}") from None
    missing = set(wanted) - {str(tracker) for tracker in accelerator.log_with}
    if missing:
        raise EvalkitError(
            f"train.trackers: {', '.join(sorted(missing))} is not installed; metrics.jsonl is"
            " always written"
        )
    if config.train.trackers:
        accelerator.init_trackers("distill", config={"recipe": config.model_dump_json()})
    return accelerator
