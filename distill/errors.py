"""The one error that users see; with its base the only names of `evalkit.core.types`."""

from __future__ import annotations

from evalkit.core.errors import EvalkitError

__all__ = ["DistillError", "EvalkitError"]


class DistillError(EvalkitError):
    """Something the user can mend: printed as one line, exit code 2, no traceback."""
