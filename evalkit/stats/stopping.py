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
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalkit.core.errors import EvalkitError
from evalkit.stats.confidence_sequence import (
    checked,
    first_refuted,
    log_capital,
    sequence_ends,
)
from evalkit.stats.inputs import Floats
from evalkit.stats.verdict import NO_WORSE, UNDECIDED, WORSE, check_margin, verdict

QUESTIONS = {
    "benchmark": "what would the whole benchmark say?",
    "tasks": "is the arm no worse on such tasks?",
}


@dataclass(frozen=True, slots=True)
class SequentialVerdict:
    """The state of one question after some samples.

    Attributes:
        question: ``"benchmark"`` or ``"tasks"``, a key of `QUESTIONS`.
        verdict: ``"no worse"``, ``"worse"`` or ``"undecided"``; once decided it stays, but for
            ``"benchmark"`` the whole benchmark has the last word when all of it is drawn.
        decided_at: samples drawn when it was decided, or None.
        n: samples drawn.
        size: samples in the benchmark.
        delta: mean difference so far.
        low: lower end of the confidence sequence now.
        high: upper end.
        estimate: middle of the confidence sequence. Where one stops early `delta` is drawn to the
            side that made one stop.
        p_no_worse: anytime p-value of "the loss is the margin or more", valid however often one
            looked (Ville 1939).
        p_worse: anytime p-value of "the loss is the margin or less".
        p_value: anytime two-sided p-value of "no difference".
    """

    question: str
    verdict: str
    decided_at: int | None
    n: int
    size: int
    delta: float
    low: float
    high: float
    estimate: float = 0.0
    p_no_worse: float = 1.0
    p_worse: float = 1.0
    p_value: float = 1.0


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


def sequential_verdicts(
    differences: ArrayLike,
    margin: float,
    size: int,
    *,
    clusters: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> dict[str, SequentialVerdict]:
    """Both questions after the samples drawn so far; call it after every batch or at every look.

    Each wrong verdict has probability (1 - confidence) / 2 at most over all looks together,
    whatever the rule by which one stops.

    Args:
        differences: [t] paired differences (arm minus baseline) in the order of `sampling_order`.
        margin: largest tolerable loss, in score units.
        size: samples in the whole benchmark.
        clusters: [size] cluster of every sample in the same order (`""` for none). Clusters are
            the units then: only complete ones count, and a cluster's difference weighs as many
            samples as it has.
        confidence: two-sided.

    Returns:
        question -> state, for ``"benchmark"`` and ``"tasks"``.

    Raises:
        EvalkitError: margin out of range, differences outside [-1, 1] or more than `size`.
    """
    check_margin(margin)
    d = checked(differences, size)
    values, ends, bound, units = _units(d, size, clusters)
    found = {}
    for question in QUESTIONS:
        population = units if question == "benchmark" else None
        low, high = -1.0, 1.0
        decided, at = UNDECIDED, None
        if len(values):
            decided, at = _decide(values, -margin / bound, population, confidence)
            low, high = sequence_ends(values, size=population, confidence=confidence)
            low, high = max(-1.0, bound * low), min(1.0, bound * high)
        count = None if at is None else int(ends[at])
        delta = math.fsum(d) / len(d)
        p_values = _anytime_p_values(values, [-margin / bound, 0.0], population, confidence)
        if question == "benchmark" and len(d) == size:  # nothing is left to infer
            low = high = delta
            p_values = [(float(delta <= null), float(delta >= null)) for null in (-margin, 0.0)]
            known = verdict(delta, delta, margin)
            if known != decided:
                decided, count = known, None if known == UNDECIDED else size
        found[question] = SequentialVerdict(
            question,
            decided,
            count,
            len(d),
            size,
            delta,
            low,
            high,
            estimate=(low + high) / 2,
            p_no_worse=p_values[0][0],
            p_worse=p_values[0][1],
            p_value=min(1.0, 2.0 * min(p_values[1])),
        )
    return found


def _anytime_p_values(
    values: Floats, nulls: Sequence[float], population: int | None, confidence: float
) -> list[tuple[float, float]]:
    """For each null, p-values of "the mean is at most this" and "at least this": 1 / capital."""
    if not len(values):
        return [(1.0, 1.0)] * len(nulls)
    x, means = (values + 1.0) / 2.0, (np.array(nulls) + 1.0) / 2.0
    above = log_capital(x, means, population, confidence).max(axis=1)
    below = log_capital(1.0 - x, 1.0 - means, population, confidence).max(axis=1)
    return [
        (math.exp(-max(0.0, up)), math.exp(-max(0.0, down)))
        for up, down in zip(above.tolist(), below.tolist(), strict=True)
    ]


def sequential_decision(
    differences: ArrayLike,
    margin: float,
    size: int,
    question: str,
    *,
    clusters: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> tuple[str, int | None]:
    """Verdict on one question and the sample at which it fell, without the interval: quick.

    Agrees with `sequential_verdicts`, whose arguments and errors these are, before the whole
    benchmark is drawn.
    """
    check_margin(margin)
    d = checked(differences, size)
    values, ends, bound, units = _units(d, size, clusters)
    if not len(values):
        return UNDECIDED, None
    population = units if question == "benchmark" else None
    decided, at = _decide(values, -margin / bound, population, confidence)
    return decided, None if at is None else int(ends[at])


def _decide(
    values: Floats, null: float, population: int | None, confidence: float
) -> tuple[str, int | None]:
    """Verdict against a mean of `null` and the unit at which it fell."""
    x, mean = (values + 1.0) / 2.0, np.array([(null + 1.0) / 2.0])
    above = float(first_refuted(x, mean, population, confidence)[0])
    below = float(first_refuted(1.0 - x, 1.0 - mean, population, confidence)[0])
    if above == below:  # only where neither is reached
        return UNDECIDED, None
    return (NO_WORSE, int(above)) if above < below else (WORSE, int(below))


def _units(
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
