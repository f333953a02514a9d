"""What the commands share: where they print, how long work shows, how errors end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from evalkit.core.errors import EvalkitError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def open_console(*, quiet: bool = False) -> Console:
    """The terminal, or a pipe or file that has no width to fit."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False, quiet=quiet)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    return console


def open_progress(console: Console) -> Progress:
    """Bars with the time left, shown on a terminal only."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def run_command(name: str, app: Callable[[], object]) -> None:
    """Run a command: what the user can mend ends in one line and exit code 2.

    So does an error in the code of another package that adds a task, scorer, engine or format.
    """
    from evalkit.dsa import ScheduleError

    try:
        app()
    except (EvalkitError, ScheduleError) as error:
        print(f"{name}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command goes on", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    except Exception as error:
        from evalkit.core.plugins import fault

        line = fault(error)
        if line is None:
            raise
        print(f"{name}: {line}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
