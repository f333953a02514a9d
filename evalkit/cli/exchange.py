"""`evalkit import` and `export`: results of other harnesses in, and out to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evalkit.cli.common import RunDir
from evalkit.core.console import echo
from evalkit.core.errors import EvalkitError
from evalkit.exporters import FORMATS as EXPORTS
from evalkit.importers import FORMATS as IMPORTS


def import_(
    format_: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help=f"{', '.join(IMPORTS.builtin)}, or the format of an installed package.",
        ),
    ],
    path: Annotated[Path, typer.Argument(help="Folder or file in that format.")],
    arm: Annotated[str, typer.Option(help="Name of the arm.")],
    out: Annotated[Path, typer.Option(help="Run directory; made if absent.")],
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Take it with other samples than the others.")
    ] = False,
    phrase: Annotated[
        list[str] | None,
        typer.Option(help="Key phrase of another needle than the original one; repeatable."),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="Of jsonl: where a field is, such as references=gold; repeatable."),
    ] = None,
    metric: Annotated[str, typer.Option(help="Of jsonl: how the answers are scored.")] = "",
) -> None:
    """Add the predictions of another harness as an arm of a run, and score them."""
    from evalkit.importers import import_predictions
    from evalkit.run.scoring import score_run
    from evalkit.run.store import RunStore

    store = RunStore(out)
    report = import_predictions(
        *(format_, path, arm, store),
        allow_partial=allow_partial,
        phrases=phrase or (),
        fields=dict(map(_pair, field or ())),
        metric=metric,
    )
    for line in report.lines():
        echo(line)
    if not report.unchanged:
        with store.lock():
            score_run(store)


def _pair(text: str) -> tuple[str, str]:
    name, separator, place = text.partition("=")
    if not (name and separator and place):
        raise EvalkitError(f"--field {text}: write it as references=gold")
    return name, place


def export(
    format_: Annotated[
        str, typer.Argument(metavar="FORMAT", help=f"{', '.join(EXPORTS.builtin)}.")
    ],
    directory: RunDir,
    out: Annotated[Path, typer.Option(help="Folder of the files; made if absent.")],
    arm: Annotated[str | None, typer.Option(help="Only this arm; default: all.")] = None,
) -> None:
    """Write scored results as lm-evaluation-harness files or for a model card of the hub."""
    from evalkit.exporters import export as write
    from evalkit.run.store import RunStore

    files = write(format_, RunStore(directory), out, arm)
    echo(f"{len(files)} files in {out}")
