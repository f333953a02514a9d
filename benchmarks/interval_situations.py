"""Simulated data sets with a known difference, for interval_methods.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Drawn = tuple[Floats, Floats, float]  # scores of the arm, of the baseline, the true difference
Draw = Callable[[np.random.Generator, int, Any], Drawn]


@dataclass(frozen=True)
class Layout:
    """Strata and clusters of the samples of a situation; None where there are none."""

    strata: Ints | None
    clusters: Ints | None


DrawLayout = Callable[[np.random.Generator, int, int, Layout], Drawn]


@dataclass(frozen=True)
class Situation:
    """A situation: `draw` makes [data sets, n] pairs of scores whose difference is known."""

    name: str
    layout: Callable[[int], Layout]
    draw: DrawLayout
    effect: bool
    binary: bool = False


# --- scores -------------------------------------------------------------------------------------


def right_wrong(gain: float, loss: float, base: float) -> Draw:
    """Baseline right with probability `base`; gain and loss are shares of all samples."""

    def draw(rng: np.random.Generator, sets: int, n: int) -> Drawn:
        b = rng.random((sets, n)) < base
        u = rng.random((sets, n))
        a = np.where(b, u >= loss / base, u < gain / (1 - base))
        return a.astype(float), b.astype(float), gain - loss

    return draw


def f1(change: float, zero_base: float, zero_arm: float) -> Draw:
    """Zero-inflated F1: 0 with some probability, else Beta(2, 1); a share `change` is redrawn."""

    def draw(rng: np.random.Generator, sets: int, n: int) -> Drawn:
        shape = (sets, n)
        b = np.where(rng.random(shape) < zero_base, 0.0, rng.beta(2.0, 1.0, shape))
        new = np.where(rng.random(shape) < zero_arm, 0.0, rng.beta(2.0, 1.0, shape))
        a = np.where(rng.random(shape) < change, new, b)
        return a, b, change * (zero_base - zero_arm) * 2 / 3

    return draw


def rouge(shift: float, catastrophes: float = 0.0) -> Draw:
    """Small differences on every sample; with some probability the arm scores 0 instead."""

    def draw(rng: np.random.Generator, sets: int, n: int) -> Drawn:
        b = rng.uniform(0.2, 0.4, (sets, n))
        a = b + shift + rng.uniform(-0.1, 0.1, (sets, n))
        lost = rng.random((sets, n)) < catastrophes
        return np.where(lost, 0.0, a), b, (1 - catastrophes) * shift - catastrophes * 0.3

    return draw


def clustered_f1(mean: float) -> Draw:
    """40 % of samples change, by an amount that varies more between haystacks than within."""

    def draw(rng: np.random.Generator, sets: int, clusters: Ints) -> Drawn:
        shape = (sets, len(clusters))
        height = rng.uniform(-0.3, 0.3, (sets, clusters.max() + 1))[:, clusters]
        change = np.where(
            rng.random(shape) < 0.4, mean + height + rng.uniform(-0.2, 0.2, shape), 0.0
        )
        return 0.5 + change / 2, np.full(shape, 0.5), 0.2 * mean

    return draw


def clustered_right_wrong(gain: float, loss: float) -> Draw:
    """Chances of gain and loss vary between haystacks (beta, 10 pseudo-samples)."""

    def draw(rng: np.random.Generator, sets: int, clusters: Ints) -> Drawn:
        height = (sets, clusters.max() + 1)
        p_gain = rng.beta(10 * gain, 10 * (1 - gain), height)[:, clusters]
        p_loss = rng.beta(10 * loss, 10 * (1 - loss), height)[:, clusters]
        u = rng.random((sets, len(clusters)))
        a, b = np.where(u < p_loss, 0.0, 1.0), np.where(u > 1 - p_gain, 0.0, 1.0)
        return a, b, gain - loss

    return draw


def clustered_rare_f1(gain: float, loss: float) -> Draw:
    """As `clustered_right_wrong`, the size of a gain or loss being Beta(2, 1)."""
    changed = clustered_right_wrong(gain, loss)

    def draw(rng: np.random.Generator, sets: int, clusters: Ints) -> Drawn:
        a, b, delta = changed(rng, sets, clusters)
        size = rng.beta(2.0, 1.0, a.shape)
        return 1.0 - size * (1.0 - a), 1.0 - size * (1.0 - b), 2.0 / 3.0 * delta

    return draw


# --- layouts ------------------------------------------------------------------------------------


def plain(n: int) -> Layout:
    """Samples without strata or clusters."""
    del n
    return Layout(None, None)


def haystacks(count: int) -> Callable[[int], Layout]:
    """n samples in clusters of unequal size (from 0.6 to 1.4 of the mean)."""

    def layout(n: int) -> Layout:
        weights = np.linspace(0.6, 1.4, count)
        ends = np.round(np.cumsum(weights) / weights.sum() * n).astype(int)
        return Layout(None, np.searchsorted(ends, np.arange(n), side="right"))

    return layout


def thirteen_tasks(clusters: int = 0) -> Callable[[int], Layout]:
    """13 tasks of 0.4 n to 1.9 n samples, mean about n."""

    def layout(n: int) -> Layout:
        sizes = (np.array([4, 5, 6, 7, 8, 9, 10, 10, 11, 12, 14, 15, 19]) * n // 10).astype(int)
        strata = np.repeat(np.arange(13), sizes)
        if not clusters:
            return Layout(strata, None)
        within = [haystacks(clusters)(int(size)).clusters for size in sizes]
        labels = np.concatenate([c + 100 * k for k, c in enumerate(within) if c is not None])
        return Layout(strata, labels)

    return layout


def each(draw: Draw) -> DrawLayout:
    """Draw independent samples, or whole clusters, of one kind."""

    def drawn(rng: np.random.Generator, sets: int, n: int, layout: Layout) -> Drawn:
        return draw(rng, sets, n if layout.clusters is None else layout.clusters)

    return drawn


def over_tasks(draws: list[Draw]) -> DrawLayout:
    """Tasks take the kinds of score in turn; the true difference is the mean over tasks."""

    def drawn(rng: np.random.Generator, sets: int, _: int, layout: Layout) -> Drawn:
        assert layout.strata is not None
        parts, truth = [], 0.0
        for task in range(13):
            here = layout.strata == task
            size = int(here.sum())
            if layout.clusters is not None:
                size = layout.clusters[here] - 100 * task
            a, b, delta = draws[task % len(draws)](rng, sets, size)
            parts.append((a, b))
            truth += delta / 13
        return np.hstack([p[0] for p in parts]), np.hstack([p[1] for p in parts]), truth

    return drawn


def situations() -> list[Situation]:
    """All of them, each without a true difference and with one."""
    found = []

    def add(name: str, none: Draw, loss: Draw, *, binary: bool = False, count: int = 0) -> None:
        layout = haystacks(count) if count else plain
        found.append(Situation(f"{name}, equal", layout, each(none), False, binary))
        found.append(Situation(f"{name}, loss", layout, each(loss), True, binary))

    near_one = right_wrong(0.015, 0.015, 0.97), right_wrong(0.005, 0.055, 0.97)
    middle = right_wrong(0.1, 0.1, 0.6), right_wrong(0.05, 0.15, 0.6)
    graded = f1(0.3, 0.4, 0.4), f1(0.3, 0.3, 0.6)
    add("right/wrong near 1", *near_one, binary=True)
    add("right/wrong near 0.6", *middle, binary=True)
    add("zero-inflated F1", *graded)
    add("F1, rare changes", f1(0.06, 0.4, 0.4), f1(0.06, 0.05, 0.9))
    add("small differences", rouge(0.0), rouge(-0.01))
    found.append(
        Situation("small differences, 3 % total losses", plain, each(rouge(0.0, 0.03)), True)
    )
    for count in (3, 5):
        add(f"F1, {count} clusters", clustered_f1(0.0), clustered_f1(-0.2), count=count)
        draws = clustered_right_wrong(0.05, 0.05), clustered_right_wrong(0.02, 0.12)
        add(f"right/wrong, {count} clusters", *draws, count=count)
        rare = clustered_rare_f1(0.03, 0.03), clustered_rare_f1(0.01, 0.06)
        add(f"F1, rare changes, {count} clusters", *rare, count=count)
    clustered_f1s = clustered_f1(0.0), clustered_f1(-0.2)
    clustered_rights = clustered_right_wrong(0.05, 0.05), clustered_right_wrong(0.05, 0.1)
    for name, kinds, clusters in (
        ("mixed", [near_one, middle, graded], 0),
        ("near 1", [near_one], 0),
        ("4 clusters each", [clustered_f1s, clustered_rights], 4),
    ):
        for number, effect in enumerate(("equal", "loss")):
            drawn = over_tasks([kind[number] for kind in kinds])
            title = f"macro of 13, {name}, {effect}"
            layout = thirteen_tasks(clusters)
            found.append(Situation(title, layout, drawn, bool(number), name == "near 1"))
    return found
