"""The `distill` command. Heavy imports happen inside the commands, so that --help is quick."""

from __future__ import annotations

import typer

from distill.cli import data, export, layerwise, oracle, plan, retrofit, search, train
from evalkit.core.console import run_command

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train the indexers of the full layers of an index-reuse schedule, and nothing else.",
)
for command in (
    train.train,
    layerwise.layerwise,
    oracle.oracle,
    search.search,
    plan.plan,
    export.export,
    data.data,
    retrofit.retrofit,
):
    app.command()(command)


def main() -> None:
    """Entry point."""
    run_command("distill", app)
