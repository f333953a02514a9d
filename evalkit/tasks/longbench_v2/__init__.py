"""LongBench v2: multiple-choice questions on long texts, in four ways to ask."""

from evalkit.tasks.base import Dataset, TaskKind
from evalkit.tasks.longbench_v2.config import DESCRIPTIONS, LongBenchV2Config
from evalkit.tasks.longbench_v2.slices import Baseline, Slice, baselines, slices
from evalkit.tasks.longbench_v2.summary import summaries
from evalkit.tasks.longbench_v2.task import LongBenchV2Task, build

__all__ = [
    "KIND",
    "Baseline",
    "LongBenchV2Config",
    "LongBenchV2Task",
    "Slice",
    "baselines",
    "build",
    "slices",
]


def _dataset(cell: str) -> Dataset:
    mode = cell.partition("/")[2]
    return Dataset("zai-org/LongBench-v2", f"LongBench v2 ({mode})", mode, "train", hub=True)


KIND = TaskKind(
    config=LongBenchV2Config,
    build=build,
    chooses=("modes",),
    descriptions=lambda: {str(mode): text for mode, text in DESCRIPTIONS.items()},
    columns={"longbench-v2": "LongBench v2"},
    summaries=summaries,
    dataset=_dataset,
)
