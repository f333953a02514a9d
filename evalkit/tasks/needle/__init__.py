"""Needle in a haystack: a grid of lengths, depths and repeats with random keys and values."""

from evalkit.tasks.base import TaskKind
from evalkit.tasks.needle.config import NeedleConfig
from evalkit.tasks.needle.kamradt import KamradtConfig, KamradtTask
from evalkit.tasks.needle.kamradt import build as build_kamradt
from evalkit.tasks.needle.task import NeedleTask, build

__all__ = [
    "KIND",
    "KamradtConfig",
    "KamradtTask",
    "NeedleConfig",
    "NeedleTask",
    "build",
    "build_kamradt",
]

KIND = TaskKind(
    config=NeedleConfig,
    build=build,
    chooses=("lengths", "repeats"),
    descriptions=lambda: {"needle": "access codes in a haystack: lengths × depths × repeats"},
    columns={"needle*": "needle"},
)
