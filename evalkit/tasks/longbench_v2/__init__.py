"""LongBench v2: multiple-choice questions on long texts, in four ways to ask."""

from evalkit.tasks.longbench_v2.config import DESCRIPTIONS, LongBenchV2Config
from evalkit.tasks.longbench_v2.slices import Baseline, Slice, baselines, slices
from evalkit.tasks.longbench_v2.task import LongBenchV2Task, build

__all__ = [
    "DESCRIPTIONS",
    "Baseline",
    "LongBenchV2Config",
    "LongBenchV2Task",
    "Slice",
    "baselines",
    "build",
    "slices",
]
