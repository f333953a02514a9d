"""What the runner asks of whoever may stop an arm early; it knows no statistics itself."""

from __future__ import annotations

from typing import Any, Protocol

from evalkit.core.types import Renderer
from evalkit.tasks.base import Task


class Stopper(Protocol):
    """Order of the samples, and which arm needs no more of them on which task."""

    baseline: str
    look: int

    def order(self, task: Task, count: int, renderer: Renderer) -> list[int]:
        """Positions of a task's first `count` samples in the order of drawing."""
        ...

    def done(self, arm: str, task: str) -> bool:
        """Whether an arm needs no more samples of a task."""
        ...

    def refuse(self, arm: str) -> None:
        """An arm gets no answers: nobody waits for it."""
        ...

    def record(self) -> dict[str, Any]:
        """What was decided, for run.json."""
        ...
