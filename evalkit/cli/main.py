"""The `evalkit` command. Heavy imports happen inside the commands, so that --help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evalkit.cli import overlap, power, report, serving
from evalkit.cli.data import app as data_app
from evalkit.cli.schedule import app as schedule_app
from evalkit.core.console import open_console, open_progress, run_command
from evalkit.core.errors import EvalkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from evalkit.run.plan import Plan
    from evalkit.run.stopping_rule import Stopper
    from evalkit.run.store import RunStore

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="What does index reuse cost in quality? Paired evaluation of DeepSeek Sparse Attention.",
)

Recipe = Annotated[Path, typer.Argument(help="Recipe (TOML), see recipes/eval.")]
RunDir = Annotated[Path, typer.Argument(help="Run directory.")]
Baseline = Annotated[
    str | None, typer.Option(help="Arm to compare with; default: the recipe's, else the first.")
]


@app.command()
def run(
    recipe: Recipe,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/<recipe name>.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override, for example engine.max_batch=8.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="First N samples of every task.")] = None,
    until_decided: Annotated[
        bool,
        typer.Option("--until-decided", help="Random order; stop each arm on a task once decided."),
    ] = False,
    question: Annotated[
        str,
        typer.Option(
            help="With --until-decided, what to decide: benchmark (what would all of it say?) or"
            " tasks (is the arm no worse on such tasks?)."
        ),
    ] = "benchmark",
) -> None:
    """Generate, score, compare and print; the same command resumes an interrupted run."""
    from evalkit.config.run import RunConfig
    from evalkit.core.recipe import load
    from evalkit.engines import help_first_process
    from evalkit.engines.hf.distributed import is_helper
    from evalkit.run.plan import plan
    from evalkit.run.scoring import score_run
    from evalkit.run.store import RunStore

    config = load(recipe, RunConfig, set_ or ())
    if is_helper():
        help_first_process(config.engine)
        return
    todo = plan(config, recipe.resolve().parent, limit)
    store = RunStore(out or Path("runs") / recipe.stem)
    console = open_console()
    stopper = None
    if until_decided:
        from evalkit.run.sequential_stopping import UntilDecided

        stopper = UntilDecided(todo, store, question=question)
    with store.lock():
        refused = _generate(todo, store, console, stopper)
        score_run(store, todo.config.scoring)
    if not refused:
        _compare(store, None, console)
    console.print(f"records: {store.path}", style="dim", highlight=False)
    if refused:
        reasons = "; ".join(f"arm {arm}: {why}" for arm, why in refused.items())
        raise EvalkitError(f"{reasons}. The same command goes on once that is mended")


@app.command()
def score(
    directory: RunDir,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Scoring setting, for example mode=strict.")
    ] = None,
) -> None:
    """Score the stored completions again; no model is needed."""
    from evalkit.config.run import ScoringConfig
    from evalkit.core.recipe import override
    from evalkit.run.scoring import score_run
    from evalkit.run.store import RunStore

    store = RunStore(directory)
    kept = store.read_run().get("scoring") or {}
    scoring = override(kept, ScoringConfig, set_ or (), "scoring")
    with store.lock():
        counts = score_run(store, scoring)
    for arm, count in counts.items():
        typer.echo(f"{arm}: {count} scores")


@app.command()
def compare(
    directory: RunDir,
    baseline: Baseline = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Setting, for example margin=0.02.")
    ] = None,
) -> None:
    """Compare the arms of a run: writes compare.json and report.md, prints the table."""
    from evalkit.run.store import RunStore

    _compare(RunStore(directory), baseline, open_console(), set_ or ())


@app.command("import")
def import_(
    format_: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="longbench, longbench_v2, ruler, needle_kamradt, lm_eval or kvpress.",
        ),
    ],
    path: Annotated[Path, typer.Argument(help="Folder or file in that format.")],
    arm: Annotated[str, typer.Option(help="Name of the arm.")],
    out: Annotated[Path, typer.Option(help="Run directory; made if absent.")],
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Take it with other samples than the others.")
    ] = False,
) -> None:
    """Add the predictions of another harness as an arm of a run, and score them."""
    from evalkit.importers import import_predictions
    from evalkit.run.scoring import score_run
    from evalkit.run.store import RunStore

    store = RunStore(out)
    report = import_predictions(format_, path, arm, store, allow_partial=allow_partial)
    for line in report.lines():
        typer.echo(line)
    if not report.unchanged:
        with store.lock():
            score_run(store)


@app.command()
def export(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="lm_eval or model_card.")],
    directory: RunDir,
    out: Annotated[Path, typer.Option(help="Folder of the files; made if absent.")],
    arm: Annotated[str | None, typer.Option(help="Only this arm; default: all.")] = None,
) -> None:
    """Write scored results as lm-evaluation-harness files or for a model card of the hub."""
    from evalkit.exporters import export as write
    from evalkit.run.store import RunStore

    files = write(format_, RunStore(directory), out, arm)
    typer.echo(f"{len(files)} files in {out}")


app.add_typer(schedule_app, name="schedule")
app.command()(serving.check)
app.command()(report.report)
app.command()(power.power)
app.command()(overlap.overlap)
app.command()(serving.bench)
app.add_typer(data_app, name="data")


@app.command()
def tasks() -> None:
    """List the tasks that a recipe can name."""
    from evalkit.tasks.registry import describe

    rows = list(describe())
    kinds, names = (max(len(row[i]) for row in rows) for i in (0, 1))
    for kind, name, text in rows:
        typer.echo(f"{kind:<{kinds}}  {name:<{names}}  {text}")


def _generate(
    todo: Plan, store: RunStore, console: Console, stopper: Stopper | None = None
) -> dict[str, str]:
    """Run what is missing under a progress bar with the time left."""
    from evalkit.run.runner import run as generate

    with open_progress(console) as progress:
        bar = progress.add_task("generate", total=todo.total)

        def on_answer(arm: str, count: int) -> None:
            progress.update(bar, advance=count, description=arm)

        try:
            return generate(todo, store, on_answer=on_answer, stopper=stopper)
        except KeyboardInterrupt:
            progress.stop()
            raise EvalkitError(
                f"interrupted; finished answers are kept in {store.path}, the same command goes on"
            ) from None


def _compare(
    store: RunStore, baseline: str | None, console: Console, changes: Sequence[str] = ()
) -> None:
    from evalkit.analysis.compare import compare_run, settings_of, write_json
    from evalkit.report import markdown, terminal
    from evalkit.report.plots import heatmap_sheet

    comparison = compare_run(store, baseline, settings_of(store, changes))
    write_json(store, comparison)
    markdown.write(store, comparison)
    terminal.show(comparison, console)
    names = [arm["name"] for arm in comparison.arms]
    for path in heatmap_sheet.write(store, names, comparison.result.baseline):
        if path.suffix == ".png":
            console.print(f"heat map: {path}", style="dim", highlight=False)


def main() -> None:
    """Entry point."""
    run_command("evalkit", app)


if __name__ == "__main__":
    main()
