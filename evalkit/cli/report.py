"""`evalkit report`: the page, its plots, the table of the MLI paper, the export for publication."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evalkit.core.console import echo
from evalkit.core.errors import EvalkitError

if TYPE_CHECKING:
    from evalkit.analysis.compare import RunComparison
    from evalkit.report.sample_browser import Prompts
    from evalkit.run.store import RunStore

WRITERS = (".md", ".tex", ".csv")


def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run directory; several are merged.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File (with --public a folder); default: report.html, retention.md or public/ in"
            " the first directory."
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Arm to compare with; default: the recipe's, else the first.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(help="retention: the MLI paper's table, as .md, .tex or .csv by --out."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="No samples, no request text, no host names.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of the comparison, for example margin=0.02."),
    ] = None,
    plots: Annotated[bool, typer.Option(help="Write plots/*.png and *.svg beside it.")] = True,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page to this machine, every answer whole.")
    ] = False,
) -> None:
    """Write the report: one HTML file that opens without a network, and plots beside it."""
    from evalkit.analysis.compare import compare_run, settings_of
    from evalkit.run.merge import MergedRuns, open_runs

    if layout not in (None, "retention"):
        raise EvalkitError(f"--layout {layout}: known is retention")
    if layout and public:
        raise EvalkitError("--public holds the retention table too: leave --layout out")
    if serve and (layout or public or out):
        raise EvalkitError("--serve writes nothing: leave --out, --layout and --public out")
    store = open_runs(directories)
    comparison = compare_run(store, baseline, settings_of(store, set_ or ()))
    if isinstance(store, MergedRuns):
        for name, (path, old) in store.renamed.items():
            echo(f"{old} of {path} has other answers or facts: shown as {name}")
    if serve:
        _serve(store, comparison)
    elif layout:
        _retention(comparison, out or store.path / "retention.md")
    elif public:
        from evalkit.report.public_export import write

        folder = out or store.path / "public"
        files = write(store, comparison, folder)
        echo(f"{len(files)} files in {folder}")
    else:
        _page(store, comparison, out or store.path / "report.html", plots)


def _page(store: RunStore, comparison: RunComparison, path: Path, plots: bool) -> None:
    from evalkit.report import html
    from evalkit.report.plots import write as pictures

    html.write(store, comparison, path, _prompts(store))
    echo(f"report: {path}")
    if plots:
        files = pictures.write(store, comparison, path.parent / "plots")
        echo(f"plots: {len(files)} files in {path.parent / 'plots'}")


def _prompts(store: RunStore) -> Prompts:
    from evalkit.run.prompt_texts import RecordedPrompts

    return RecordedPrompts(*store.read_runs())


def _serve(store: RunStore, comparison: RunComparison) -> None:
    """Answer browsers until Ctrl-C."""
    from evalkit.report.serve import ReportServer

    server = ReportServer(store, comparison, _prompts(store))
    echo(f"report: {server.address} (Ctrl-C ends it)")
    try:
        server.serve()
    except KeyboardInterrupt:
        echo("report: no longer served")


def _retention(comparison: RunComparison, path: Path) -> None:
    from evalkit.core.files import write_atomic
    from evalkit.report import retention_table

    writers = dict(
        zip(
            WRITERS,
            (retention_table.markdown, retention_table.latex, retention_table.csv_text),
            strict=True,
        )
    )
    if path.suffix not in writers:
        raise EvalkitError(f"--out {path}: end it in {', '.join(WRITERS)}")
    write_atomic(path, writers[path.suffix](retention_table.retention_table(comparison)))
    echo(f"table: {path}")
