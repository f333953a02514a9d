"""Adjusted p-values for several comparisons at once: Holm, Benjamini-Hochberg."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.inputs import Floats


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down adjustment: controls the chance of any false claim, whatever the dependence.

    With p_(1) <= ... <= p_(m): adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j))
    (Holm 1979).

    Args:
        p_values: [m].

    Returns:
        [m] adjusted values in the order given.

    Raises:
        EvalkitError: not one-dimensional, or a value outside [0, 1].
    """
    p, order = _sorted(p_values)
    steps = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Benjamini and Hochberg's step-up adjustment: controls the expected share of false claims.

    Adjusted p_(i) = min over j >= i of min(1, m p_(j) / j) (Benjamini and Hochberg 1995). Valid
    for independent or positively dependent tests; arms that share a baseline are the latter.

    Args:
        p_values: [m].

    Returns:
        [m] adjusted values in the order given.

    Raises:
        EvalkitError: not one-dimensional, or a value outside [0, 1].
    """
    p, order = _sorted(p_values)
    steps = np.minimum(1.0, p[order] * len(p) / np.arange(1, len(p) + 1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(steps[::-1])[::-1]
    return adjusted


ADJUSTMENTS: dict[str, Callable[[ArrayLike], Floats]] = {
    "holm": holm,
    "benjamini-hochberg": benjamini_hochberg,
}


def _sorted(p_values: ArrayLike) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1:
        raise EvalkitError("p-values must be one-dimensional")
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise EvalkitError("p-values must lie in [0, 1]")
    return p, np.argsort(p, kind="stable")
