"""Scorers: `score(metric, prediction, references)` is one number in [0, 1] per answer.

No torch, no transformers: stored answers are scored again anywhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from evalkit.scorers import match
from evalkit.types import EvalkitError

Metric = Callable[[str, tuple[str, ...]], float]

METRICS: dict[str, Metric] = {
    "ruler_all": match.ruler_all,
    "ruler_part": match.ruler_part,
    "needle_exact": match.needle_exact,
}


def score(metric: str, prediction: str, references: tuple[str, ...]) -> float:
    """Score one answer.

    Raises:
        EvalkitError: the metric is unknown (the nearest known one is suggested), or there is
            nothing to compare with.
    """
    if metric not in METRICS:
        near = difflib.get_close_matches(metric, METRICS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(METRICS)}"
        raise EvalkitError(f"unknown metric {metric}; {hint}")
    if not references:
        raise EvalkitError(f"{metric}: a sample without references cannot be scored")
    return METRICS[metric](prediction, references)
