"""The frame of a command: its help, its version, the words that it uses."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from evalkit.core.console import echo
from evalkit.core.provenance import DISTRIBUTION

EPILOG = "What the words mean: docs/glossary.md."


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(version(DISTRIBUTION))
        raise typer.Exit


def command_line(text: str) -> typer.Typer:
    """An empty command with `--version` and `--help`; `text` says what it is for."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help=text,
        epilog=EPILOG,
    )

    @app.callback()
    def _options(
        _: Annotated[
            bool,
            typer.Option(
                "--version", help="Print the version.", is_eager=True, callback=_print_version
            ),
        ] = False,
    ) -> None:
        pass

    return app
