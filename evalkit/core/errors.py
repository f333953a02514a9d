"""The error that users see, and how a library's message becomes one line."""

from __future__ import annotations


class EvalkitError(Exception):
    """Something the user can mend: printed as one line, exit code 2, no traceback."""


def in_one_line(error: BaseException) -> str:
    """What a library said, without the line breaks of its message; its type where it said none."""
    return " ".join(str(error).split()) or type(error).__name__
