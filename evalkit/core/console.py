"""What the commands share: where they print, how long work shows, how errors end.

Everything that a command prints goes through here: no secret that the process was told, and no
control character of a server, a model or an arm, reaches the terminal.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, cast

from evalkit.core.errors import EvalkitError, Interrupted
from evalkit.core.printable import printable
from evalkit.core.secrets import redact

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


UNLIMITED = 10_000
"""Columns of a pipe or file: no name is cut and no line is broken there."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def shown(text: str) -> str:
    """A text as it may be printed: without secrets, control characters spelled out."""
    return printable(redact(text))


def echo(text: str = "", *, error: bool = False) -> None:
    """Print a line, on stderr for an `error`."""
    print(shown(text), file=sys.stderr if error else sys.stdout)


def open_console(*, quiet: bool = False) -> Console:
    """The terminal, or a pipe or file that has no width to fit; texts are printed as `shown`."""
    from rich.console import Console

    class ShownConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(shown(o) if isinstance(o, str) else o for o in objects), **options)

    console = ShownConsole(highlight=False, soft_wrap=False, quiet=quiet)
    if not console.is_terminal:
        console.width = UNLIMITED
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

    with _guarded():
        try:
            app()
        except Interrupted as error:
            echo(f"{name}: interrupted: {error}", error=True)
            sys.exit(INTERRUPTED)
        except (EvalkitError, ScheduleError) as error:
            echo(f"{name}: {error}", error=True)
            sys.exit(2)
        except SystemExit as ended:
            if ended.code == INTERRUPTED:  # typer's, once Ctrl-C was pressed in a command
                echo(f"{name}: interrupted; the same command goes on", error=True)
            raise
        except Exception as error:
            from evalkit.core.plugins import fault

            line = fault(error)
            if line is None:
                sys.excepthook = _show_traceback  # once this has returned, nothing guards stderr
                raise
            echo(f"{name}: {line}", error=True)
            sys.exit(2)


def _show_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    echo("".join(traceback.format_exception(kind, error, trace)).rstrip(), error=True)


class _Guard:
    """A stream that no secret passes, whoever writes to it: libraries, warnings, log records."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(redact(text))

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _guarded() -> Iterator[None]:
    out, err = (cast(IO[str], _Guard(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield
