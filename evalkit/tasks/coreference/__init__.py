"""Multi-round co-reference: the i-th of several equal requests of a long conversation."""

from evalkit.tasks.base import TaskKind
from evalkit.tasks.coreference.config import CoreferenceConfig
from evalkit.tasks.coreference.task import CoreferenceTask, build

__all__ = ["KIND", "CoreferenceConfig", "CoreferenceTask", "build"]

KIND = TaskKind(
    config=CoreferenceConfig,
    build=build,
    chooses=("equal", "lengths", "samples"),
    descriptions=lambda: {
        "coreference": "the i-th of several equal requests of a long conversation"
    },
)
