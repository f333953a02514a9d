"""The frame of a command: its help, its version, the words that it uses."""

from __future__ import annotations

from typing import Annotated, Any

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


class CommandGroup(TyperGroup):
    """A group whose `--help`, where it is not asked for, is False.

    Typer leaves None there, and loads pydantic to make a bool of it: a third of the time that the
    help of a command below the group takes.
    """

    def get_help_option(self, ctx: Any) -> Any:
        """Typer's, with a default."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


def command_group(
    text: str, cls: type[CommandGroup] = CommandGroup, epilog: str | None = None
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
