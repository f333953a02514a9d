"""The error that users see, and how a library's message becomes one line."""

from __future__ import annotations


class EvalkitError(Exception):
    """Something the user can mend: printed as one line, exit code 2, no traceback."""


def in_one_line(error: BaseException) -> str:
    """What a library said, without the line breaks of its message; its type where it said none."""
    return " ".join(str(error).split()) or type(error).__name__


class Interrupted(EvalkitError):  # noqa: N818 - what happened, not what went wrong
    """Ctrl-C in a command that does not simply go on when it is given again; exit code 130."""
