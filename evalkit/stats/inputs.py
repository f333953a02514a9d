"""Checks and reductions shared by the methods: scores, strata, clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalkit.core.errors import EvalkitError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOISE = 1e-9  # spread below this is rounding

Labels = Sequence[str] | Sequence[int] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Units:
    """One stratum reduced to its resampling units (samples, or whole clusters).

    Attributes:
        sums: [arms, units] sum of the differences to the baseline over the samples of each unit.
        sizes: [units] samples in each unit.
        delta: [arms] mean difference over the samples of the stratum, correctly rounded.
        gains: [arms] sum of the positive differences.
        losses: [arms] sum of the negative differences, as a positive number.
        squares: [arms] sum of the squared differences.
        differing: [arms] number of samples whose scores differ.
        n: samples in the stratum.
    """

    sums: Floats
    sizes: Floats
    delta: Floats
    gains: Floats
    losses: Floats
    squares: Floats
    differing: Floats
    n: int

    @property
    def count(self) -> int:
        """Number of resampling units."""
        return len(self.sizes)

    @property
    def clustered(self) -> bool:
        """Whether some unit holds several samples."""
        return self.count < self.n

    def influence(self) -> Floats:
        """Jackknife influence values l_j = (G - 1) (theta - theta_without_j), [arms, units].

        Davison and Hinkley (1997), section 2.7.3. For samples that are not clustered this is
        d_j - mean(d). Zero where there is one unit only.
        """
        if self.count == 1:
            return np.zeros_like(self.sums)
        total = np.array([[math.fsum(row)] for row in self.sums])
        without = (total - self.sums) / (self.n - self.sizes)
        values = (self.count - 1) * (total / self.n - without)
        values[np.abs(values) < NOISE] = 0.0
        return values

    def variance(self, arm: int) -> float:
        """Variance of the mean difference of one arm, cluster-robust.

        G / (G - 1) sum_j (s_j - theta m_j)^2 / n^2, the linearised variance of a ratio (Cochran
        1977, chapter 6); without clusters the usual s^2 / n. Needs two units at least.
        """
        residual = self.sums[arm] - self.delta[arm] * self.sizes
        residual[np.abs(residual) < NOISE] = 0.0
        return math.fsum(residual**2) * self.count / (self.count - 1) / self.n**2

    def few_clusters(self) -> tuple[float, float]:
        """Factor that replaces G / (G - 1) in `variance`, and degrees of freedom, by cluster sizes.

        Both are exact for normal effects of the haystacks, of one variance, that dominate the
        noise within (Bell and McCaffrey 2002, with that working model): the variance estimate is
        a quadratic form with matrix A = (I - w 1') diag(w^2) (I - 1 w'), w the shares of the
        samples; it is scaled to its mean and gets tr(A)^2 / tr(A^2) degrees of freedom. Equal
        clusters give G / (G - 1) and G - 1.
        """
        share = self.sizes / self.n
        s, a, b, e = (float(np.sum(share**power)) for power in (2, 3, 4, 5))
        trace = s - 2.0 * a + s**2
        square = b + 2.0 * a**2 + 4.0 * s * b + s**4 - 4.0 * e - 4.0 * s**2 * a
        return s / trace, trace**2 / square


@dataclass(frozen=True, slots=True)
class Stratum:
    """The samples of one stratum (one task): its label and its units."""

    label: str
    units: Units


def score_matrix(scores: ArrayLike) -> Floats:
    """Scores as a float [arms, n] matrix.

    Raises:
        EvalkitError: not two-dimensional, empty, not finite, or outside [0, 1].
    """
    try:
        matrix = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise EvalkitError("scores must be numbers, as many in every arm") from None
    if matrix.ndim != 2:
        raise EvalkitError(f"scores must be one row per arm, got {matrix.ndim} dimensions")
    if matrix.size == 0:
        raise EvalkitError("no scores to compare")
    if not np.isfinite(matrix).all():
        raise EvalkitError("scores hold nan or inf; a failed generation scores 0")
    if matrix.min() < 0.0 or matrix.max() > 1.0:
        raise EvalkitError("scores must lie in [0, 1]; divide percentages by 100")
    return matrix


def pair(a: ArrayLike, b: ArrayLike) -> Floats:
    """Baseline and arm as a [2, n] score matrix, the baseline first.

    Raises:
        EvalkitError: lengths differ, or what `score_matrix` refuses.
    """
    arm, base = np.asarray(a), np.asarray(b)
    if arm.ndim != 1 or arm.shape != base.shape:
        raise EvalkitError(f"scores of {arm.shape} and {base.shape}: one per sample, same samples")
    return score_matrix([base, arm])


def label_array(labels: Labels | None, n: int, name: str) -> NDArray[Any] | None:
    """Labels as an array of length n, or None.

    Raises:
        EvalkitError: as many labels as samples are needed.
    """
    if labels is None:
        return None
    array = np.asarray(labels)
    if array.shape != (n,):
        raise EvalkitError(f"{name}: {array.shape} labels for {n} samples")
    return array


def split(
    differences: Floats, strata: Labels | None, clusters: Labels | None, keys: Labels | None = None
) -> list[Stratum]:
    """Cut differences [arms, n] into strata, sorted by label, and reduce each to its units.

    Units are ordered by cluster label, or by `keys` (sample ids), so results do not depend on
    the order of samples when either is given. A cluster label seen in two strata makes two units.
    """
    n = differences.shape[1]
    strata = label_array(strata, n, "strata")
    clusters = label_array(clusters, n, "clusters")
    keys = label_array(keys, n, "keys")
    if clusters is None:
        clusters = keys
    if strata is None:
        return [Stratum("", reduce(differences, clusters))]
    result = []
    for label in np.unique(strata):
        pick = np.flatnonzero(strata == label)
        inner = None if clusters is None else clusters[pick]
        result.append(Stratum(str(label), reduce(differences[:, pick], inner)))
    return result


def reduce(differences: Floats, clusters: NDArray[Any] | None) -> Units:
    """Sums and sizes per cluster of one stratum; every sample is its own unit without clusters.

    Differences are rounded to a power of two so fine (below 1e-11 for 5,000 samples) that every
    sum over a resample is exact in float64: results cannot depend on the order of summation.
    """
    n = differences.shape[1]
    moments = {
        "delta": _sums(differences) / n,
        "gains": _sums(np.maximum(differences, 0.0)),
        "losses": _sums(np.maximum(-differences, 0.0)),
        "squares": _sums(differences**2),
        "differing": _sums((np.abs(differences) > NOISE).astype(np.float64)),
    }
    if clusters is None:
        inverse, sizes = None, np.ones(n)
    else:
        _, inverse, counts = np.unique(clusters, return_inverse=True, return_counts=True)
        sizes = counts.astype(np.float64)
    grid = 2.0 ** (52 - math.ceil(math.log2(max(2.0, len(sizes) * sizes.max()))))
    whole = np.rint(differences * grid)
    if inverse is not None:
        whole = np.stack([np.bincount(inverse, row, len(sizes)) for row in whole])
    return Units(sums=whole / grid, sizes=sizes, n=n, **moments)


def _sums(rows: Floats) -> Floats:
    """Correctly rounded sum of every row, whatever the order within it."""
    return np.array([math.fsum(row) for row in rows])


def clusters_span_strata(strata: Labels | None, clusters: Labels | None) -> bool:
    """Whether some cluster has samples in more than one stratum."""
    if strata is None or clusters is None:
        return False
    pairs = set(zip(np.asarray(strata).tolist(), np.asarray(clusters).tolist(), strict=True))
    return len(pairs) > len({cluster for _, cluster in pairs})
