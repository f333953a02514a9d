"""`evalkit run`, `score` and `compare`: answers, scores and tables of a run directory."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evalkit.cli.common import Baseline, Out, RunDir
from evalkit.core.console import echo, open_console
from evalkit.core.errors import EvalkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from evalkit.run.plan import RunPlan
    from evalkit.run.store import RunStore

NO_ANSWERS = 3
"""Exit code of a run in which an arm has not one usable answer."""


def run(
    recipe: Annotated[
        Path | None, typer.Argument(help="Recipe (TOML), see `evalkit recipes`.")
    ] = None,
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
    model: Annotated[
        str | None, typer.Option(help="Without a recipe: directory or hub id.")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="With --model: ruler:vt@8192,longbench:qasper,needle@16k and so on."),
    ] = None,
    arms: Annotated[
        str, typer.Option(help="With --model: 1/2,k1,1/4+k1 beside the baseline and its repeat.")
    ] = "",
    samples: Annotated[
        int | None, typer.Option(help="With --model: samples of every task; default: 100.")
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(help="With --model: server of all arms, or ARM=URL; may be given again."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of answers that runs share: asked once for all of them."),
    ] = None,
) -> None:
    """Generate, score, compare and print; the same command resumes an interrupted run."""
    if recipe is not None and (model or tasks or arms or url or samples):
        raise EvalkitError("give a recipe, or --model with --tasks and --arms, not both")
    if recipe is None and limit is not None:
        raise EvalkitError("--limit is for a recipe: with --model, say --samples")
    if recipe is None:
        store, todo = _without_recipe(model, tasks, arms, samples, url or (), set_ or (), out)
    else:
        store, todo = _with_recipe(recipe, set_ or (), out, limit)
    typed = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    todo = replace(todo, command=typed)
    _carry_out(store, todo, question if until_decided else None, cache)


def _carry_out(store: RunStore, todo: RunPlan, question: str | None, cache: Path | None) -> None:
    """Run a plan to its table; with a question, arms stop once it is decided."""
    from evalkit.api import carry_out
    from evalkit.engines import help_first_process
    from evalkit.engines.hf.distributed import is_helper
    from evalkit.run.answer_cache import AnswerCache

    if is_helper():
        help_first_process(todo.config.engine)
        return
    console = open_console()
    stopping = None
    if question is not None:
        from evalkit.run.sequential_stopping import SequentialStopping

        stopping = SequentialStopping(todo, store, question=question)
    with store.lock():
        answers = None if cache is None else AnswerCache(cache)
        refused = carry_out(todo, store, console, stopping=stopping, cache=answers)
    silent = [] if refused else _compare(store, None, console)
    console.print(f"records: {store.path}", style="dim", highlight=False)
    if refused:
        reasons = "; ".join(f"arm {arm}: {why}" for arm, why in refused.items())
        raise EvalkitError(f"{reasons}. The same command goes on once that is mended")
    if silent:
        typer.echo(f"evalkit: not one usable answer of {', '.join(silent)}", err=True)
        raise typer.Exit(NO_ANSWERS)


def _with_recipe(
    recipe: Path, changes: Sequence[str], out: Path | None, limit: int | None
) -> tuple[RunStore, RunPlan]:
    """The run of a recipe: one that lies in a run directory is the run there."""
    from evalkit.config.run import RunConfig
    from evalkit.core.recipe import load
    from evalkit.run.plan import plan
    from evalkit.run.store import RunStore

    todo = plan(load(recipe, RunConfig, changes), recipe.resolve().parent, limit)
    beside = RunStore(recipe.parent)
    if out is None and recipe == beside.recipe and beside.exists:
        return beside, todo
    return RunStore(out or Path("runs") / recipe.stem), todo


def _without_recipe(
    model: str | None,
    tasks: str | None,
    arms: str,
    samples: int | None,
    urls: Sequence[str],
    changes: Sequence[str],
    out: Path | None,
) -> tuple[RunStore, RunPlan]:
    """The run that a model, tasks and arms stand for."""
    from evalkit.api.evaluate import default_directory, short_plan
    from evalkit.run.short_recipe import SAMPLES, short_recipe
    from evalkit.run.store import RunStore

    if model is None or not tasks:
        raise EvalkitError("give a recipe, or --model and --tasks, such as --tasks ruler:vt@8192")
    count = SAMPLES if samples is None else samples
    recipe = short_recipe(model, _listed(tasks), _listed(arms), samples=count, urls=urls)
    store = RunStore(out or default_directory(model))
    return store, short_plan(recipe, changes, store)


def _listed(text: str) -> list[str]:
    """Entries between commas."""
    return [entry for part in text.split(",") if (entry := part.strip())]


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


def _compare(
    store: RunStore, baseline: str | None, console: Console, changes: Sequence[str] = ()
) -> list[str]:
    """Write and print the comparison; the arms that have not one usable answer."""
    from evalkit.analysis.compare import settings_of
    from evalkit.api.evaluate import compared
    from evalkit.report import terminal
    from evalkit.report.plots import heatmap_sheet

    comparison = compared(store, baseline, settings_of(store, changes)).details
    terminal.show(comparison, console)
    names = [arm.name for arm in comparison.arms]
    for path in heatmap_sheet.write(store, names, comparison.result.baseline):
        if path.suffix == ".png":
            console.print(f"heat map: {path}", style="dim", highlight=False)
    silent = [name for name, scores in comparison.scored.items() if all(scores.unusable)]
    unread = [row.arm for row in comparison.perplexity if row.failed and not row.documents]
    return list(dict.fromkeys([*silent, *unread]))
