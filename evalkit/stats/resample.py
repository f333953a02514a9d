"""Resampling: one seeded count matrix per stratum, shared by every arm.

A bootstrap resample of G units is a vector of counts c (how often each unit was drawn, sum G).
All arms need from it are sums over units, so a block of resamples is one matrix product
counts [resamples, units] @ table [units, columns], whatever the number of arms. Counts are whole
numbers and the table lies on a power-of-two grid (`inputs.reduce`), so each product is exact:
adding an arm, changing the BLAS or its threads cannot change a result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evalkit.stats.inputs import Floats, Units

BLOCK_CELLS = 1 << 18  # counts held at once; 2 MiB of float64
DECIMALS = 9  # resampled means are rounded so that equal ones compare equal


@dataclass(frozen=True, slots=True)
class Resampled:
    """Bootstrap replicates of one stratum.

    Attributes:
        means: [resamples, arms] mean difference of every resample.
        variances: [resamples, arms] estimated variance of that mean within the resample, or None.
    """

    means: Floats
    variances: Floats | None


def stream(seed: int, label: str = "") -> np.random.Generator:
    """The random stream of one stratum: depends on the seed and the label, on nothing else."""
    digest = hashlib.sha256(label.encode()).digest()
    words = [int.from_bytes(digest[k : k + 4], "little") for k in range(0, 16, 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))


def count_blocks(rng: np.random.Generator, units: int, n_resamples: int) -> Iterator[Floats]:
    """Counts [rows, units] of `n_resamples` draws with replacement, block by block."""
    rows = max(1, BLOCK_CELLS // units)
    for start in range(0, n_resamples, rows):
        size = min(rows, n_resamples - start)
        drawn = rng.integers(0, units, size=(size, units), dtype=np.int64)
        drawn += np.arange(size, dtype=np.int64)[:, None] * units
        counts = np.bincount(drawn.ravel(), minlength=size * units)
        yield counts.reshape(size, units).astype(np.float64)


def resample(
    units: Units, n_resamples: int, rng: np.random.Generator, *, variances: bool = False
) -> Resampled:
    """Mean differences (and their variances) of `n_resamples` resamples of whole units.

    With unequal clusters the mean is the ratio sum of scores / number of samples drawn. The
    variance of a resample is the linearised one, sum_j c_j (s_j - theta m_j)^2 / M^2 times
    G / (G - 1), with s_j, m_j the sum and size of unit j and M the samples drawn.
    """
    arms, count = units.sums.shape
    table, divisor = _table(units, variances)
    means = np.empty((n_resamples, arms))
    spread = np.empty((n_resamples, arms)) if variances else None
    done = 0
    for counts in count_blocks(rng, count, n_resamples):
        block = (counts @ table) / divisor
        rows = slice(done, done + len(counts))
        done += len(counts)
        drawn = block[:, -1:]
        ratio = block[:, :arms] / drawn
        means[rows] = np.round(ratio, DECIMALS)
        if spread is not None:
            squares, cross = block[:, arms : 2 * arms], block[:, 2 * arms : 3 * arms]
            sizes2 = block[:, -2:-1]
            residual = squares - 2 * ratio * cross + ratio**2 * sizes2
            spread[rows] = residual * (count / (count - 1)) / drawn**2
    if spread is not None:
        spread[spread < 1e-14] = 0.0
    return Resampled(means, spread)


def _table(units: Units, squares: bool) -> tuple[Floats, Floats]:
    """Columns to be summed per resample, as whole numbers, and the divisors that undo the scale.

    Columns: s of every arm, then (for variances) s^2 and s m of every arm and m^2, last m.
    """
    largest = float(units.sizes.max())
    parts = [(units.sums, largest)]
    if squares:
        parts += [
            (units.sums**2, largest**2),
            (units.sums * units.sizes, largest**2),
            (units.sizes[None, :] ** 2, largest**2),
        ]
    parts.append((units.sizes[None, :], largest))
    columns, divisors = [], []
    for values, bound in parts:
        grid = 2.0 ** (52 - math.ceil(math.log2(max(2.0, units.count * bound))))
        columns.append(np.rint(values * grid))
        divisors += [grid] * len(values)
    return np.ascontiguousarray(np.concatenate(columns).T), np.array(divisors)
