"""Answers that are no evidence: differences at the worst and the best that they can have been.

An answer that failed, is missing, or was cut before it came may have been worth anything in [0, 1].
Scored 0 in both arms it would count as a pair that agrees, and a run in which nothing worked would
show equality. The true difference lies between the two ends, whatever made the answers fail
(Manski's worst-case bounds, Horowitz and Manski 2000, JASA 95:77).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalkit.core.errors import EvalkitError
from evalkit.stats.inputs import Floats


def difference_ends(
    arm: ArrayLike,
    baseline: ArrayLike,
    arm_unusable: ArrayLike,
    baseline_unusable: ArrayLike,
) -> tuple[Floats, Floats]:
    """Differences with every unusable answer counted against the arm, and for it.

    Args:
        arm: [n] scores in [0, 1]; those of unusable answers do not matter.
        baseline: [n] scores of the baseline.
        arm_unusable: [n] whether the arm's answer is no evidence.
        baseline_unusable: [n] whether the baseline's is none.

    Returns:
        worst, best: [n] each, in [-1, 1]. A failed answer of the arm is 0 or 1, one of the
        baseline 1 or 0, a pair of which both failed -1 or 1.

    Raises:
        EvalkitError: lengths differ.
    """
    a, b = np.asarray(arm, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    no_a: NDArray[np.bool_] = np.asarray(arm_unusable, dtype=np.bool_)
    no_b: NDArray[np.bool_] = np.asarray(baseline_unusable, dtype=np.bool_)
    if not a.shape == b.shape == no_a.shape == no_b.shape:
        raise EvalkitError(f"{a.shape} scores, {b.shape} of the baseline: one mask entry for each")
    worst = np.where(no_a, 0.0, a) - np.where(no_b, 1.0, b)
    best = np.where(no_a, 1.0, a) - np.where(no_b, 0.0, b)
    return worst, best
