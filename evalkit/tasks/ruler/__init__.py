"""RULER's thirteen tasks, generated: haystacks that fill a token budget, wording as official."""

from evalkit.tasks.base import Dataset, TaskKind
from evalkit.tasks.ruler.config import DESCRIPTIONS, NAMES, RulerConfig
from evalkit.tasks.ruler.summary import summaries
from evalkit.tasks.ruler.task import RulerTask, build

__all__ = ["KIND", "RulerConfig", "RulerTask", "build"]

KIND = TaskKind(
    config=RulerConfig,
    build=build,
    chooses=("tasks", "lengths", "samples"),
    descriptions=lambda: DESCRIPTIONS,
    columns=dict.fromkeys(NAMES, "RULER"),
    summaries=summaries,
    dataset=lambda cell: Dataset("ruler", f"RULER ({cell})", cell),
)
