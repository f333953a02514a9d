"""Tests of no difference that hold exactly: McNemar for right/wrong scores, sign flips for any."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.inputs import Labels, Stratum, pair, split
from evalkit.stats.resample import BLOCK_CELLS, stream

EXACT_UNITS = 14  # up to 2^14 sign patterns are enumerated


def mcnemar(arm_only: int, baseline_only: int, *, mid_p: bool = False) -> float:
    """Exact two-sided McNemar test of right/wrong scores.

    Given the x + y discordant pairs, x is binomial with probability 1/2 if the arms are equal
    (McNemar 1947). The mid-p version counts the observed outcome half (Fagerland, Lydersen and
    Laake 2013): less conservative, no longer guaranteed.

    Args:
        arm_only: x, samples that only the arm answers correctly.
        baseline_only: y, samples that only the baseline answers correctly.
        mid_p: the mid-p version.

    Raises:
        EvalkitError: a negative count.
    """
    if min(arm_only, baseline_only) < 0:
        raise EvalkitError(f"discordant counts {arm_only}, {baseline_only}: none may be negative")
    n, k = arm_only + baseline_only, min(arm_only, baseline_only)
    whole = int(2**n)
    doubled = 2 * sum(math.comb(n, i) for i in range(k + 1))
    if mid_p and n > 0:
        # at x = y the two tails share the observed outcome
        doubled = doubled - math.comb(n, k) if 2 * k < n else whole - math.comb(n, k) // 2
    return min(1.0, doubled / whole)


def sign_flip(
    a: ArrayLike,
    b: ArrayLike,
    *,
    strata: Labels | None = None,
    clusters: Labels | None = None,
    n_resamples: int = 10000,
    seed: int = 0,
) -> float:
    """Two-sided sign-flip permutation test of the (macro) mean difference.

    If the arms are exchangeable, every unit's difference is as likely with the other sign. All
    2^G patterns are enumerated for up to 14 units that differ, else B are drawn and
    p = (1 + #{|T*| >= |T|}) / (B + 1) (Phipson and Smyth 2010). Whole clusters flip together.
    With G units p cannot be below 2 / 2^G: three clusters can never be significant.

    Args:
        a: [n] scores of the arm, in [0, 1].
        b: [n] scores of the baseline on the same samples.
        strata: [n] task of each sample; the statistic is the mean over tasks.
        clusters: [n] haystack of each sample.
        n_resamples: sign patterns drawn when they are too many to enumerate.
        seed: of the patterns.

    Raises:
        EvalkitError: what `paired_bootstrap` refuses.
    """
    matrix = pair(a, b)
    parts = split(matrix[1:] - matrix[:1], strata, clusters)
    return sign_flip_parts(0, parts, n_resamples, seed)


def sign_flip_parts(arm: int, parts: list[Stratum], n_resamples: int, seed: int) -> float:
    """`sign_flip` of one arm whose differences are already reduced to units."""
    values = np.concatenate([p.units.sums[arm] / (p.units.n * len(parts)) for p in parts])
    values = values[np.abs(values) > 1e-12]
    observed = abs(math.fsum(values)) - 1e-12
    if len(values) == 0:
        return 1.0
    if len(values) <= EXACT_UNITS:
        codes = np.arange(2 ** len(values))[:, None] >> np.arange(len(values))
        flipped = (1.0 - 2.0 * (codes & 1)) @ values
        return float(np.mean(np.abs(flipped) >= observed))
    hits = 0
    rng = stream(seed, "sign flips")
    rows = max(1, BLOCK_CELLS // len(values))
    for start in range(0, n_resamples, rows):
        size = min(rows, n_resamples - start)
        signs = 1.0 - 2.0 * rng.integers(0, 2, size=(size, len(values)), dtype=np.int64)
        hits += int(np.count_nonzero(np.abs(signs @ values) >= observed))
    return (1 + hits) / (n_resamples + 1)
