"""Graph walk: breadth-first frontier or parents of a node in a long list of edges."""

from evalkit.tasks.base import TaskKind
from evalkit.tasks.graphwalk.config import DESCRIPTIONS, GraphWalkConfig
from evalkit.tasks.graphwalk.task import GraphWalkTask, build

__all__ = ["KIND", "GraphWalkConfig", "GraphWalkTask", "build"]

KIND = TaskKind(
    config=GraphWalkConfig,
    build=build,
    chooses=("operations", "lengths", "samples"),
    descriptions=lambda: DESCRIPTIONS,
)
