"""Several generations per sample: how much of the noise repetition can remove."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.inputs import score_matrix


@dataclass(frozen=True, slots=True)
class Components:
    """Variance of a paired difference, taken apart.

    Attributes:
        between: variance of the true difference between samples.
        within: variance of one generation around its sample, both arms together: one repeat of
            the arm minus one of the baseline.
        n: samples.
        repeats: generations per sample of the arm.
        baseline_repeats: generations per sample of the baseline.
    """

    between: float
    within: float
    n: int
    repeats: int
    baseline_repeats: int

    def standard_error(self, n: int, repeats: int) -> float:
        """Standard error of the mean difference with n samples and r repeats in both arms."""
        return math.sqrt((self.between + self.within / repeats) / n)


def components(a: ArrayLike, b: ArrayLike) -> Components:
    """Between-sample and within-sample (generation) variance of the difference.

    One-way analysis of variance: the within component is the sum of both arms' mean squares
    within samples; the between component is the variance of the differences of sample means less
    within_a / r_a + within_b / r_b, not below 0. The mean over repeats stays the score of a
    sample everywhere else, so intervals hold both components without further ado.

    Args:
        a: [n, r_a] scores of the arm, r_a generations of every sample.
        b: [n, r_b] scores of the baseline on the same samples.

    Raises:
        EvalkitError: shapes that do not fit, fewer than two samples, or one generation only in
            both arms (nothing to take apart).
    """
    arm, base = score_matrix(a), score_matrix(b)
    n = len(arm)
    if len(base) != n or n < 2:
        raise EvalkitError(f"repeats of {n} and {len(base)} samples: the same two or more needed")
    if arm.shape[1] < 2 or base.shape[1] < 2:
        raise EvalkitError("two generations per sample at least, in both arms")
    within = [float(np.mean(np.var(x, axis=1, ddof=1))) for x in (arm, base)]
    difference = arm.mean(axis=1) - base.mean(axis=1)
    noise = within[0] / arm.shape[1] + within[1] / base.shape[1]
    between = max(0.0, float(np.var(difference, ddof=1)) - noise)
    return Components(between, sum(within), n, arm.shape[1], base.shape[1])
