"""End a forward in the middle: layers after the last one that is needed never run."""

from __future__ import annotations


class ForwardStoppedError(Exception):
    """Raised by a hook when nothing after it is needed, caught around the forward."""
