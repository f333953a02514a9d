"""The `distill` command. Heavy imports happen inside the commands, so that --help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distill.cli.export import export
from distill.cli.layerwise import layerwise
from distill.cli.plan import plan
from distill.cli.search import search
from distill.errors import EvalkitError
from evalkit.core.console import open_console, run_command

if TYPE_CHECKING:
    from distill.config.train import DistillConfig

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Bring back what index reuse cost: train the indexers of the full layers, nothing else.",
)

app.command()(layerwise)
app.command()(export)
app.command()(search)
app.command()(plan)

Recipe = Annotated[Path, typer.Argument(help="Recipe (TOML), see recipes/distill.")]
Out = Annotated[Path | None, typer.Option(help="Directory; default: runs/<recipe name>.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override, for example train.steps=40.")
]


@app.command()
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

    config, where = _config(recipe, set_), _out(recipe, out)
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


@app.command()
def oracle(
    recipe: Recipe,
    out: Out = None,
    set_: Set = None,
    tail: Annotated[float, typer.Option(help="Share of positions of the second column.")] = 0.05,
    each: Annotated[
        bool, typer.Option("--each", help="Try every consumer alone too: minutes, not one.")
    ] = False,
) -> None:
    """What an arm could give: selections that know what the consumers want, before any training."""
    from distill.setup import open_session
    from distill.validation.oracle_bound import ceiling_table, ceilings

    config, console = _config(recipe, set_), open_console()
    session = open_session(config, recipe.resolve().parent, _out(recipe, out) / "data")
    with console.status("oracle selections"):
        rows = ceilings(session, tail, each=each)
    console.print(ceiling_table(rows, tail, str(session.schedule)))


@app.command()
def data(recipe: Recipe, out: Out = None, set_: Set = None) -> None:
    """Pack the recipe's text into sequences and say what was taken and what left out."""
    from distill.config.train import resolve_model
    from distill.data.packing import prepare
    from distill.models.load import load_tokenizer
    from distill.setup import forbidden

    config, base_dir = _config(recipe, set_), recipe.resolve().parent
    tokenizer = load_tokenizer(resolve_model(config.model, base_dir))
    directory = _out(recipe, out) / "data"
    avoid = forbidden(config, tokenizer, base_dir)
    packed = prepare(config.data, tokenizer, base_dir, directory, avoid)
    counts = packed.facts["counts"]
    for name, split in packed.splits.items():
        tokens = packed.facts["tokens"][name]
        typer.echo(f"{name}: {len(split)} sequences, {tokens:,} tokens")
    typer.echo(
        f"{counts['documents']} documents read, {counts['excluded']} excluded for repeating an"
        f" evaluation prompt, {counts['too_short']} too short"
    )
    typer.echo(f"tokenizer sha256 {packed.facts['identity']['tokenizer_sha256'][:16]}")
    typer.echo(f"tokens sha256 {packed.sha256[:16]}: {directory}")


def _config(recipe: Path, overrides: list[str] | None) -> DistillConfig:
    from distill.config.train import DistillConfig
    from evalkit.core.recipe import load

    return load(recipe, DistillConfig, overrides or ())


def _out(recipe: Path, out: Path | None) -> Path:
    directory = out or Path("runs") / recipe.stem
    directory.mkdir(parents=True, exist_ok=True)
    return directory


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


def main() -> None:
    """Entry point."""
    run_command("distill", app)


if __name__ == "__main__":
    main()
