"""`evalkit overlap`: overlap of index selections, before any generation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.core.errors import EvalkitError

LEFT_OUT = "distilled indexers, reuse over time and other checkpoints select otherwise"


def overlap(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML) with engine.kind = hf.")],
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/<recipe name>.")
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(help="Long texts, .txt or .jsonl; default: prompts of the recipe's tasks."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Cell whose prompts are the texts.")] = None,
    lengths: Annotated[str | None, typer.Option(help="Tokens, for example 4096,16384.")] = None,
    documents: Annotated[int, typer.Option(min=1, help="Texts at most.")] = 16,
    rows: Annotated[int, typer.Option(min=1, help="Query rows per text and length.")] = 32,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override, for example engine.dtype=bfloat16.")
    ] = None,
) -> None:
    """Overlap of the layers' selections and what each arm's sources supply; nothing is generated.

    Writes overlap.json and plots/overlap.png beside the run; `evalkit compare` shows them beside
    quality.
    """
    from evalkit.analysis.overlap_record import write_overlap
    from evalkit.analysis.selection_overlap import measure, task_documents, text_documents
    from evalkit.config.run import RunConfig
    from evalkit.core.console import open_console
    from evalkit.core.recipe import load
    from evalkit.report.panels import overlap as show
    from evalkit.report.plots import heatmap
    from evalkit.report.terminal import show_grid
    from evalkit.run.plan import plan

    if text and task:
        raise EvalkitError("--text and --task both name the texts: give one of them")
    todo = plan(load(recipe, RunConfig, set_ or ()), recipe.resolve().parent)
    console = open_console()
    record = measure(
        todo,
        lambda model: (
            text_documents(text, model, documents)
            if text
            else task_documents(todo, model, documents, task)
        ),
        lengths=None if lengths is None else _numbers(lengths),
        rows=rows,
        on_document=lambda name: console.print(f"reading {name}", style="dim", markup=False),
    )
    folder = out or Path("runs") / recipe.stem
    write_overlap(folder, record)
    heatmap.save(show.maps(record), folder / "plots" / "overlap")
    console.print(show.heading(record), markup=False)
    show_grid(show.adjacent(record), console)
    show_grid(show.arms(record), console)
    for name in record.left_out:
        console.print(f"· {name}: not measured: {LEFT_OUT}", style="dim")
    console.print(f"records: {folder}", style="dim", highlight=False)


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise EvalkitError(f"--lengths {text}: write whole numbers, for example 4096,16384")
    return [int(part) for part in parts]
