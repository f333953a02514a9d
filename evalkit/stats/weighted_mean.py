"""A weighted mean of tasks, from what is known of each task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from evalkit.stats.result import PairedResult


class WeightedDifference(NamedTuple):
    """The difference of two weighted means.

    Attributes:
        delta: arm minus baseline.
        low: lower end of the interval.
        high: upper end, at the confidence of the tasks' intervals.
    """

    delta: float
    low: float
    high: float


def weighted_difference(
    results: Mapping[str, PairedResult], weights: Mapping[str, float]
) -> WeightedDifference:
    """Squaring and adding: low = d - sqrt(sum w_k^2 (d_k - l_k)^2), high likewise.

    The method of variance estimates recovery (Zou and Donner 2008, Statistics in Medicine 27, eq.
    7, for a linear combination of independent estimates); with equal weights it is Newcombe's.

    Args:
        results: every task's paired difference.
        weights: of the tasks, summing to 1.
    """
    delta = math.fsum(w * results[task].delta for task, w in weights.items())
    down = math.fsum((w * (results[t].delta - results[t].low)) ** 2 for t, w in weights.items())
    up = math.fsum((w * (results[t].high - results[t].delta)) ** 2 for t, w in weights.items())
    return WeightedDifference(
        delta, max(-1.0, delta - math.sqrt(down)), min(1.0, delta + math.sqrt(up))
    )
