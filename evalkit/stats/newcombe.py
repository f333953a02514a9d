"""Newcombe's interval for several arms and tasks of right/wrong scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.stats.closed_form_intervals import NORMAL, newcombe_paired
from evalkit.stats.inputs import Floats, Stratum
from evalkit.stats.interval_method import IntervalMethod, PairedScores
from evalkit.stats.result import ArmResults, PairedResult, caution, differing

Counts = tuple[int, int, int, int]


def newcombe_arms(scores: PairedScores) -> ArmResults:
    """Newcombe's method 10 per task; the macro average by squaring and adding.

    For the mean over K tasks with estimates d_k and ends (l_k, u_k): low = d - sqrt(sum (d_k -
    l_k)^2) / K, high likewise (Zou and Donner 2008). The p-value is the level at which the
    interval touches 0.

    Raises:
        EvalkitError: a score is not 0 or 1, or samples are clustered.
    """
    matrix, baseline, strata = scores.matrix, scores.baseline, scores.design.strata
    parts, confidence = scores.parts(), scores.confidence
    if not np.isin(matrix, (0.0, 1.0)).all():
        raise EvalkitError("method 'newcombe' takes scores of 0 and 1 only")
    if any(part.units.clustered for part in parts):
        raise EvalkitError("method 'newcombe' takes no clusters; 'score' does")
    labels = np.zeros(matrix.shape[1], dtype=np.int64) if strata is None else np.asarray(strata)
    masks = [labels == label for label in np.unique(labels)]
    counts = [[_counts(row[m], matrix[baseline][m]) for row in matrix] for m in masks]
    arms = range(len(matrix))
    overall = tuple(_result(arm, parts, [c[arm] for c in counts], confidence) for arm in arms)
    by_task = {
        part.label: tuple(_result(arm, [part], [c[arm]], confidence) for arm in arms)
        for part, c in zip(parts, counts, strict=True)
    }
    return ArmResults(overall, by_task if strata is not None else {})


def _counts(arm: Floats, base: Floats) -> Counts:
    """Samples right in both, in the arm only, in the baseline only, in neither."""
    both, arm_only = float(arm @ base), float(arm @ (1 - base))
    baseline_only = float((1 - arm) @ base)
    n = len(arm)
    return int(both), int(arm_only), int(baseline_only), n - int(both + arm_only + baseline_only)


def _result(
    arm: int, parts: Sequence[Stratum], counts: Sequence[Counts], confidence: float
) -> PairedResult:
    delta = math.fsum(part.units.delta[arm] for part in parts) / len(parts)
    low, high = _square_and_add(delta, counts, confidence)
    return PairedResult(
        delta=delta,
        low=low,
        high=high,
        p_value=_touching_zero(delta, counts),
        n=sum(part.units.n for part in parts),
        n_clusters=sum(part.units.count for part in parts),
        method="newcombe",
        confidence=confidence,
        caution=caution(parts, [True], bootstrap=False),
        n_differing=differing(arm, parts),
    )


def _square_and_add(
    delta: float, counts: Sequence[Counts], confidence: float
) -> tuple[float, float]:
    down, up = 0.0, 0.0
    for table in counts:
        low, high = newcombe_paired(*table, confidence=confidence)
        middle = (table[1] - table[2]) / sum(table)
        down += (middle - low) ** 2
        up += (high - middle) ** 2
    share = 1.0 / len(counts)
    return max(-1.0, delta - share * math.sqrt(down)), min(1.0, delta + share * math.sqrt(up))


def _touching_zero(delta: float, counts: Sequence[Counts]) -> float:
    """Two-sided p-value: 1 - the confidence at which the interval reaches 0, by bisection on z."""
    if delta == 0.0:
        return 1.0
    inside, outside = 7.5, 0.0
    for _ in range(50):
        z = (inside + outside) / 2
        low, high = _square_and_add(delta, counts, 1.0 - 2.0 * NORMAL.cdf(-z))
        inside, outside = (z, outside) if low <= 0.0 <= high else (inside, z)
    return 2.0 * NORMAL.cdf(-inside)


NEWCOMBE = IntervalMethod(newcombe_arms, right_wrong=True)
