"""Whether a task can show a loss: how far the baseline is above what no knowledge scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from evalkit.stats.gaffke import BoundedUnits
from evalkit.stats.inputs import Labels, reduce, score_matrix
from evalkit.stats.one_sided import bounded_units
from evalkit.stats.verdict import NothingToLose


def nothing_to_lose(
    baseline: ArrayLike,
    margin: float,
    floor: ArrayLike | float = 0.0,
    *,
    clusters: Labels | None = None,
    alpha: float = 0.025,
) -> NothingToLose | None:
    """Why a task says nothing about a loss of the margin; None where it can show one.

    An arm that knows nothing scores the floor. If the baseline is not shown to be more than the
    margin above it, even that arm would lose less than the margin, and "no worse" would be empty.
    Shown means a lower bound and not a point estimate: Gaffke's, on the paired gaps; for
    right/wrong scores above a floor of 0 that is Clopper and Pearson's.

    Args:
        baseline: [n] scores in [0, 1].
        margin: largest tolerable loss.
        floor: score that no knowledge gets: chance (0.25 with four letters), or [n] the scores of
            the best constant answer.
        clusters: [n] haystack of each sample.
        alpha: chance that the bound is wrong.

    Raises:
        EvalkitError: scores that `score_matrix` refuses.
    """
    scores = score_matrix(np.asarray(baseline, dtype=np.float64)[None])
    floors = score_matrix(np.broadcast_to(np.asarray(floor, dtype=np.float64), scores.shape))
    labels = None if clusters is None else np.asarray(clusters)
    units = reduce(scores - floors, labels)
    gaps = bounded_units([units], 0)
    # no unit lies further below 0 than the floor, and the heaviest weighs its share of the samples
    least = float(floors.max()) * float(units.sizes.max()) * units.count / units.n
    test = BoundedUnits(gaps.values, gaps.counts, least)
    if test.p(margin) <= alpha:
        return None
    return NothingToLose(float(scores.mean()), float(floors.mean()), test.lower(alpha))
