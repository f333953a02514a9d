"""Needle tests of others, as they defined them."""

from evalkit.tasks.needle.presets.kamradt import KamradtConfig, KamradtTask
from evalkit.tasks.needle.presets.kamradt import build as build_kamradt

__all__ = ["KamradtConfig", "KamradtTask", "build_kamradt"]
