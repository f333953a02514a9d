"""The `distill` command. Heavy imports happen inside the commands, so that --help is quick."""

from __future__ import annotations

from distill.cli import data, export, layerwise, oracle, plan, retrofit, search, train
from evalkit.core.command_line import command_line
from evalkit.core.console import run_command

app = command_line(
    "Train the indexers of the full layers of an index-reuse schedule, and nothing else."
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
