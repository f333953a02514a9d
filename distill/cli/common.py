"""What the commands of `distill` share: their arguments, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from evalkit.core.files import writing

if TYPE_CHECKING:
    from distill.config.train import DistillConfig
    from distill.training.state import Measure, TrainState

Recipe = Annotated[Path, typer.Argument(help="Recipe (TOML), see recipes/distill.")]
Out = Annotated[Path | None, typer.Option(help="Directory; default: runs/<recipe name>.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override, for example train.steps=40.")
]

Device = Annotated[str | None, typer.Option(help="cpu, cuda, npu …; default: what is there.")]
Dump = Annotated[Path | None, typer.Option(help="Hidden states of `distill dump` or an engine.")]
SaveAnyway = Annotated[
    bool, typer.Option("--save-anyway", help="Save the indexers even if they gain nothing.")
]
GAINS_NOTHING = 4  # exit code


def end_without_gain(state: TrainState, measure: Measure) -> NoReturn:
    """Say that the undistilled arm is at least as good, and that nothing was saved; exit code 4."""
    before, after = state.compared(measure)
    what = "logit KL" if measure == "logit_kl" else "recall"
    typer.echo(
        f"distill: nothing gained: {what} on held-out text is {before:.4f} undistilled and"
        f" {after:.4f} distilled; no indexer saved. Run the arm as it is, or repeat the command"
        " with --save-anyway",
        err=True,
    )
    raise typer.Exit(GAINS_NOTHING)


def load_recipe(recipe: Path, overrides: list[str] | None) -> DistillConfig:
    """The recipe with its overrides."""
    from distill.config.train import DistillConfig
    from evalkit.core.recipe import load

    return load(recipe, DistillConfig, overrides or ())


def run_directory(recipe: Path, out: Path | None) -> Path:
    """Where a command writes; made if absent."""
    directory = out or Path("runs") / recipe.stem
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory
