"""The state of a confidence sequence as tests look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalkit.stats import QUESTIONS, DrawnTask, sequential_decision


@dataclass(frozen=True)
class State:
    """Verdict, when it fell, and the ends of the sequence now."""

    verdict: str
    decided_at: int | None
    low: float
    high: float


def states(
    differences: ArrayLike,
    margin: float,
    size: int,
    *,
    clusters: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> dict[str, State]:
    """Both questions after the samples drawn so far."""
    d, alpha = np.asarray(differences, dtype=np.float64), (1 - confidence) / 2
    task = DrawnTask(d, size, clusters or ())
    options = {"clusters": clusters, "confidence": confidence}
    return {
        question: State(
            *sequential_decision(d, margin, size, question, **options),
            task.lower(question, alpha),
            -task.mirrored().lower(question, alpha),
        )
        for question in QUESTIONS
    }
