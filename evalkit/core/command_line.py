"""The frame of a command: its help, its version, the words that it uses."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperGroup

from evalkit.core.console import echo

EPILOG = "What the words mean: docs/glossary.md."


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from evalkit.core.provenance import DISTRIBUTION

        echo(version(DISTRIBUTION))
        raise typer.Exit


def command_group(
    text: str, cls: type[TyperGroup] = TyperGroup, epilog: str | None = None
) -> typer.Typer:
    """A command that has commands below it; `text` says what it is for.

    Help is plain text: importing what draws boxes around it takes longer than all the rest.
    """
    return typer.Typer(
        cls=cls,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help=text,
        epilog=epilog,
    )


def command_line(text: str) -> typer.Typer:
    """An empty command with `--version` and `--help`; `text` says what it is for."""
    app = command_group(text, epilog=EPILOG)

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
