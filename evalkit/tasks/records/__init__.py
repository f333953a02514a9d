"""Tasks of one's own: a file or data set, a prompt template, references and a metric."""

from pathlib import Path

from evalkit.tasks.base import TaskKind
from evalkit.tasks.records import questions
from evalkit.tasks.records.config import RecordsConfig
from evalkit.tasks.records.task import RecordsTask, build

__all__ = ["KIND", "RecordsConfig", "RecordsTask", "build"]


def _contents(config: RecordsConfig, base_dir: Path) -> dict[str, str]:
    field = "path" if config.path is not None else "dataset"
    return {field: f"sha256 {questions.table(config, base_dir).sha256}"}


KIND = TaskKind(
    config=RecordsConfig,
    build=build,
    chooses=("lengths",),
    descriptions=lambda: {"records": "questions of your own: a file, a template and a metric"},
    contents=_contents,
)
