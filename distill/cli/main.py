"""The `distill` command. Heavy imports happen inside the commands, so that --help is quick."""

from __future__ import annotations

from distill.cli import (
    data,
    dump,
    export,
    export_targets,
    layerwise,
    oracle,
    plan,
    retrofit,
    search,
    train,
)
from evalkit.core.command_line import command_line
from evalkit.core.console import run_command

app = command_line(
    "Train the indexers of the full layers of an index-reuse schedule, and nothing else."
)
for command in (
    train.train,
    layerwise.layerwise,
    dump.dump,
    oracle.oracle,
    search.search,
    plan.plan,
    export.export,
    export_targets.export_targets,
    data.data,
    retrofit.retrofit,
):
    app.command()(command)


def main() -> None:
    """Entry point."""
    run_command("distill", app)
