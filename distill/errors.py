"""The one error that users see, and how a library's message becomes one line."""

from __future__ import annotations

from evalkit.core.errors import EvalkitError

__all__ = ["DistillError", "EvalkitError", "first_line"]


class DistillError(EvalkitError):
    """Something the user can mend: printed as one line, exit code 2, no traceback."""


def first_line(error: BaseException) -> str:
    """The first line of what a library said; its type where it said nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
