"""Graph walk: breadth-first frontier or parents of a node in a long list of edges."""

from evalkit.tasks.graphwalk.config import DESCRIPTIONS, GraphWalkConfig
from evalkit.tasks.graphwalk.task import GraphWalkTask, build

__all__ = ["DESCRIPTIONS", "GraphWalkConfig", "GraphWalkTask", "build"]
