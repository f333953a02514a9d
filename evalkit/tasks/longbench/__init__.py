"""LongBench and LongBench-E: records and prompts read as data, truncated in the middle."""

from evalkit.tasks.base import Dataset, TaskKind
from evalkit.tasks.longbench.config import LongBenchConfig
from evalkit.tasks.longbench.facts import Facts, scoring_meta, tasks
from evalkit.tasks.longbench.suites import Macro, complete, macros, suites
from evalkit.tasks.longbench.summary import summaries
from evalkit.tasks.longbench.task import LongBenchTask, build

__all__ = [
    "KIND",
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


def _descriptions() -> dict[str, str]:
    return {
        name: f"{facts.category} ({facts.language}), {facts.metric}"
        for name, facts in tasks().items()
    }


def _dataset(cell: str) -> Dataset:
    family, _, rest = cell.partition("/")
    config = rest if family == "longbench" else f"{rest.partition('@')[0]}_e"
    return Dataset("zai-org/LongBench", f"LongBench ({rest})", config, "test", hub=True)


KIND = TaskKind(
    config=LongBenchConfig,
    build=build,
    chooses=("suite", "tasks", "e"),
    descriptions=_descriptions,
    columns={"longbench": "LongBench", "longbench-e": "LongBench-E"},
    summaries=summaries,
    dataset=_dataset,
)
