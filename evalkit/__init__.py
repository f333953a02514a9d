"""Paired quality evaluation of index-reuse schedules for DeepSeek Sparse Attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalkit.api import Comparison, evaluate

__all__ = ["Comparison", "evaluate"]


def __getattr__(name: str) -> object:
    """`evaluate` and what it returns, imported when they are first asked for."""
    if name in __all__:
        from evalkit import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
