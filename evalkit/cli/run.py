"""`evalkit run`, `score` and `compare`: answers, scores and tables of a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evalkit.cli.common import Baseline, Out, Recipe, RunDir
from evalkit.core.console import echo, open_console, open_progress
from evalkit.core.errors import EvalkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from evalkit.run.plan import RunPlan
    from evalkit.run.runner import StoppingRule
    from evalkit.run.store import RunStore

NO_ANSWERS = 3
"""Exit code of a run in which an arm has not one usable answer."""


def run(
    recipe: Recipe,
    out: Out = None,
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
            help="With --until-decided, what to decide: tasks (is the arm no worse on such tasks?)"
            " or benchmark (what would the whole benchmark say?)."
        ),
    ] = "tasks",
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
    stopping = None
    if until_decided:
        from evalkit.run.sequential_stopping import SequentialStopping

        stopping = SequentialStopping(todo, store, question=question)
    with store.lock():
        refused = _generate(todo, store, console, stopping)
        score_run(store, todo.config.scoring)
    silent = [] if refused else _compare(store, None, console)
    console.print(f"records: {store.path}", style="dim", highlight=False)
    if refused:
        reasons = "; ".join(f"arm {arm}: {why}" for arm, why in refused.items())
        raise EvalkitError(f"{reasons}. The same command goes on once that is mended")
    if silent:
        typer.echo(f"evalkit: not one usable answer of {', '.join(silent)}", err=True)
        raise typer.Exit(NO_ANSWERS)


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
    scoring = override(store.read_run().scoring, ScoringConfig, set_ or (), "scoring")
    with store.lock():
        counts = score_run(store, scoring)
    for arm, count in counts.items():
        echo(f"{arm}: {count} scores")


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


def _generate(
    todo: RunPlan, store: RunStore, console: Console, stopping: StoppingRule | None = None
) -> dict[str, str]:
    """Run what is missing under a progress bar with the time left."""
    from evalkit.run.haystack_plan import undecidable
    from evalkit.run.runner import run as generate
    from evalkit.run.shared_prefill import prefills

    for line in (*prefills(todo), *undecidable(todo)):
        console.print(f"· {line}", style="dim", markup=False)
    with open_progress(console) as progress:
        bar = progress.add_task("generate", total=todo.total)

        def on_answer(arm: str, count: int) -> None:
            progress.update(bar, advance=count, description=arm)

        try:
            return generate(todo, store, on_answer=on_answer, stopping=stopping)
        except KeyboardInterrupt:
            progress.stop()
            raise EvalkitError(
                f"interrupted; finished answers are kept in {store.path}, the same command goes on"
            ) from None


def _compare(
    store: RunStore, baseline: str | None, console: Console, changes: Sequence[str] = ()
) -> list[str]:
    """Write and print the comparison; the arms that have not one usable answer."""
    from evalkit.analysis.compare import compare_run, settings_of, write_json
    from evalkit.report import markdown, terminal
    from evalkit.report.plots import heatmap_sheet

    comparison = compare_run(store, baseline, settings_of(store, changes))
    write_json(store, comparison)
    markdown.write(store, comparison)
    terminal.show(comparison, console)
    names = [arm.name for arm in comparison.arms]
    for path in heatmap_sheet.write(store, names, comparison.result.baseline):
        if path.suffix == ".png":
            console.print(f"heat map: {path}", style="dim", highlight=False)
    silent = [name for name, scores in comparison.scored.items() if all(scores.unusable)]
    unread = [row.arm for row in comparison.perplexity if row.failed and not row.documents]
    return list(dict.fromkeys([*silent, *unread]))
