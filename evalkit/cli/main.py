"""The `evalkit` command. Heavy imports happen inside the commands, so that --help is quick."""

from __future__ import annotations

from evalkit.cli import (
    arms,
    bench,
    cache,
    check,
    data,
    exchange,
    overlap,
    power,
    recipes,
    report,
    run,
    runs,
    schedule,
    tasks,
)
from evalkit.core.command_line import command_line
from evalkit.core.console import run_command

app = command_line(
    "What does index reuse cost in quality? Paired evaluation of DeepSeek Sparse Attention."
)
app.command()(run.run)
app.command()(run.score)
app.command()(run.compare)
app.command()(runs.runs)
app.command()(report.report)
app.command("import")(exchange.import_)
app.command()(exchange.export)
app.add_typer(arms.app, name="arms")
app.add_typer(schedule.app, name="schedule")
app.command()(check.check)
app.command()(bench.bench)
app.command()(cache.cache)
app.command()(power.power)
app.command()(overlap.overlap)
app.add_typer(data.app, name="data")
app.command()(tasks.tasks)
app.command()(recipes.recipes)
app.command()(recipes.demo)


def main() -> None:
    """Entry point."""
    run_command("evalkit", app)
