"""LongBench and LongBench-E: records and prompts read as data, truncated in the middle."""

from evalkit.tasks.longbench.config import LongBenchConfig
from evalkit.tasks.longbench.facts import Facts, scoring_meta, tasks
from evalkit.tasks.longbench.suites import Macro, complete, macros, suites
from evalkit.tasks.longbench.task import LongBenchTask, build

__all__ = [
    "Facts",
    "LongBenchConfig",
    "LongBenchTask",
    "Macro",
    "build",
    "complete",
    "macros",
    "scoring_meta",
    "suites",
    "tasks",
]
