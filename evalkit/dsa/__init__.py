"""Index-reuse schedules of DeepSeek Sparse Attention, and their effect on a live model.

Closed sub-package at the bottom: it imports nothing else of the project. `ReuseSchedule` needs the
standard library only; the names that need torch are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.dsa.layout import Layout, layout
from evalkit.dsa.schedule import LagPhase, Phase, ReuseSchedule, ScheduleError

if TYPE_CHECKING:
    from evalkit.dsa.apply import AppliedSchedule, ScheduleInUseError, apply_schedule
    from evalkit.dsa.call import IndexerCall
    from evalkit.dsa.families.base import UnsupportedModelError
    from evalkit.dsa.families.sites import index_features
    from evalkit.dsa.features import IndexFeatures
    from evalkit.dsa.scores import index_scores, select

_LAZY = {
    "AppliedSchedule": "apply",
    "ScheduleInUseError": "apply",
    "apply_schedule": "apply",
    "IndexFeatures": "features",
    "IndexerCall": "call",
    "UnsupportedModelError": "families.base",
    "index_features": "families.sites",
    "index_scores": "scores",
    "select": "scores",
}

__all__ = [
    "AppliedSchedule",
    "IndexFeatures",
    "IndexerCall",
    "LagPhase",
    "Layout",
    "Phase",
    "ReuseSchedule",
    "ScheduleError",
    "ScheduleInUseError",
    "UnsupportedModelError",
    "apply_schedule",
    "index_features",
    "index_scores",
    "layout",
    "select",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"evalkit.dsa.{_LAZY[name]}"), name)
