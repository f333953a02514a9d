"""Stop when decided: the order of drawing and the verdict after any number of samples.

Two questions are kept apart. "benchmark": what would the whole benchmark say? A finite
population, drawn without replacement; once all of it is drawn the answer is known. "tasks": is
the arm no worse on tasks of this kind? A superpopulation of which the benchmark is a sample; the
whole benchmark may leave it open. The same data decide the first earlier.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.confidence_sequence import checked, first_refuted
from evalkit.stats.inputs import Floats
from evalkit.stats.verdict import Verdict, check_margin

QUESTIONS = {
    "benchmark": "what would the whole benchmark say?",
    "tasks": "is the arm no worse on such tasks?",
}


def sampling_order(
    ids: Sequence[str], *, clusters: Sequence[str] | None = None, seed: int = 0
) -> list[int]:
    """A seeded random order of samples: positions in `ids`, clusters kept together.

    Sorted by sha256 of seed and label, so the order depends neither on the order of `ids` nor on
    other tasks, and every arm and every restart draws the same samples first.

    Args:
        ids: sample ids, unique.
        clusters: cluster of every sample; ``""`` is a sample of its own.
        seed: of the order.
    """
    labels = list(ids)
    if clusters is not None:
        labels = [c or name for c, name in zip(clusters, ids, strict=True)]

    def draw(kind: str, label: str) -> bytes:
        return hashlib.sha256(f"{seed} {kind} {label}".encode()).digest()

    keys = [(draw("unit", labels[k]), draw("sample", ids[k])) for k in range(len(ids))]
    return sorted(range(len(ids)), key=lambda k: keys[k])


def sequential_decision(
    differences: ArrayLike,
    margin: float,
    size: int,
    question: str,
    *,
    clusters: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> tuple[Verdict, int | None]:
    """Verdict on one question and the sample at which it fell; call it at every look.

    Each wrong verdict has probability (1 - confidence) / 2 at most over all looks together,
    whatever the rule by which one stops. Interval and p-value: `evalkit.stats.sequential_test`.

    Args:
        differences: [t] paired differences (arm minus baseline) in the order of `sampling_order`.
        margin: largest tolerable loss, in score units.
        size: samples in the whole benchmark.
        question: a key of `QUESTIONS`.
        clusters: [size] cluster of every sample in the same order (`""` for none). Clusters are
            the units then: only complete ones count, and a cluster's difference weighs as many
            samples as it has.
        confidence: two-sided.

    Returns:
        ``"no worse"``, ``"worse"`` or ``"undecided"``, and the samples drawn when it fell, or None.

    Raises:
        EvalkitError: margin out of range, differences outside [-1, 1] or more than `size`.
    """
    check_margin(margin)
    d = checked(differences, size)
    values, ends, bound, units = complete_units(d, size, clusters)
    if not len(values):
        return Verdict.UNDECIDED, None
    population = units if question == "benchmark" else None
    decided, at = _decide(values, -margin / bound, population, confidence)
    return decided, None if at is None else int(ends[at])


def _decide(
    values: Floats, null: float, population: int | None, confidence: float
) -> tuple[Verdict, int | None]:
    """Verdict against a mean of `null` and the unit at which it fell."""
    x, mean = (values + 1.0) / 2.0, np.array([(null + 1.0) / 2.0])
    above = float(first_refuted(x, mean, population, confidence)[0])
    below = float(first_refuted(1.0 - x, 1.0 - mean, population, confidence)[0])
    if above == below:  # only where neither is reached
        return Verdict.UNDECIDED, None
    return (Verdict.NO_WORSE, int(above)) if above < below else (Verdict.WORSE, int(below))


def complete_units(
    d: Floats, size: int, clusters: Sequence[str] | None
) -> tuple[Floats, Floats, float, int]:
    """Values of complete units in [-1, 1], samples drawn at their ends, their scale, units in all.

    A cluster's value is its sum times units / size, so that the mean over all units is the mean
    over samples; dividing by the largest possible value brings it into [-1, 1].
    """
    if clusters is None:
        return d, np.arange(1.0, len(d) + 1), 1.0, size
    if len(clusters) != size:
        raise EvalkitError(f"{len(clusters)} clusters for a benchmark of {size} samples")
    labels = [c or f"sample {k}" for k, c in enumerate(clusters)]
    starts = [k for k in range(size) if k == 0 or labels[k] != labels[k - 1]]
    if len({labels[k] for k in starts}) < len(starts):
        raise EvalkitError("clusters must be drawn one after the other (see sampling_order)")
    ends = np.array([*starts[1:], size])
    done = ends <= len(d)
    sums = np.array([math.fsum(d[a:b]) for a, b in zip(starts, ends, strict=True)])[done]
    bound = float(np.max(np.diff([0, *ends]))) * len(starts) / size
    return sums * len(starts) / size / bound, ends[done].astype(float), bound, len(starts)
