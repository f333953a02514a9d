"""Simulated evaluations with a known difference, for coverage.py: the situations of the field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Draw = Callable[[np.random.Generator, int], Floats]  # [data sets, n] differences


@dataclass(frozen=True)
class Layout:
    """Tasks and haystacks of the samples.

    Attributes:
        tasks: [n] number of the task.
        clusters: [n] number of the haystack, or None where every sample has its own.
    """

    tasks: Ints
    clusters: Ints | None = None

    @property
    def n(self) -> int:
        """Samples."""
        return len(self.tasks)


@dataclass(frozen=True)
class Situation:
    """Evaluations whose true difference is exactly -margin, and the same without a difference.

    Attributes:
        name: row of the table.
        layout: of the samples.
        margin: largest tolerable loss.
        at_margin: draws differences with the mean (over tasks) -margin.
        equal: draws differences with the mean 0 and the same churn, or None.
        textbook: interval that a textbook would take: ``"score"`` or ``"t"``.
        binary: whether all differences are -1, 0 or 1.
        failures: shares of the answers of the arm and the baseline that fail, and whether the
            failing ones are those that the arm loses.
        repeat: draws the baseline's second run minus its first, or None where it was run once.
    """

    name: str
    layout: Layout
    margin: float
    at_margin: Draw
    equal: Draw | None = None
    textbook: str = "score"
    binary: bool = True
    failures: tuple[float, float, bool] = field(default=(0.0, 0.0, False))
    repeat: Callable[[np.random.Generator, Floats], Floats] | None = None


# --- differences ---------------------------------------------------------------------------------


def right_wrong(layout: Layout, gain: float, loss: Floats | float) -> Draw:
    """Samples are gained and lost independently; the share of losses may differ by sample."""

    def draw(rng: np.random.Generator, sets: int) -> Floats:
        u = rng.random((sets, layout.n))
        return np.where(u < loss, -1.0, np.where(u > 1.0 - gain, 1.0, 0.0))

    return draw


def clustered(layout: Layout, gain: float, loss: float, icc: float) -> Draw:
    """Beta-binomial gains and losses: haystacks differ in their shares with this correlation."""
    assert layout.clusters is not None
    clusters, count = layout.clusters, int(layout.clusters.max()) + 1

    def shares(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        if mean == 0.0:
            return np.zeros((sets, layout.n))
        if icc == 1.0:
            height = (rng.random((sets, count)) < mean).astype(float)
        else:
            pseudo = 1.0 / icc - 1.0
            height = rng.beta(mean * pseudo, (1.0 - mean) * pseudo, (sets, count))
        return height[:, clusters]

    def draw(rng: np.random.Generator, sets: int) -> Floats:
        lost = rng.random((sets, layout.n)) < shares(rng, sets, loss)
        gained = rng.random((sets, layout.n)) < shares(rng, sets, gain)
        return gained.astype(float) - lost

    return draw


def noise_and_losses(layout: Layout, size: float, share: float, total: float) -> Draw:
    """Small differences on a share of the samples; a few lose everything."""

    def draw(rng: np.random.Generator, sets: int) -> Floats:
        shape = (sets, layout.n)
        small = np.where(rng.random(shape) < share, rng.uniform(-size, size, shape), 0.0)
        return np.where(rng.random(shape) < total, -1.0, small)

    return draw


def f1(layout: Layout, change: float, zero_base: float, zero_arm: float) -> Draw:
    """Zero-inflated F1: 0 with some probability, else Beta(2, 1); a share `change` is redrawn."""

    def draw(rng: np.random.Generator, sets: int) -> Floats:
        shape = (sets, layout.n)
        b = np.where(rng.random(shape) < zero_base, 0.0, rng.beta(2.0, 1.0, shape))
        a = np.where(rng.random(shape) < zero_arm, 0.0, rng.beta(2.0, 1.0, shape))
        return np.where(rng.random(shape) < change, a - b, 0.0)

    return draw


def haystack_shift(layout: Layout, mean: float, between: float, within: float) -> Draw:
    """Graded differences that vary between haystacks and within."""
    assert layout.clusters is not None
    clusters, count = layout.clusters, int(layout.clusters.max()) + 1

    def draw(rng: np.random.Generator, sets: int) -> Floats:
        height = rng.uniform(-between, between, (sets, count))[:, clusters]
        return mean + height + rng.uniform(-within, within, (sets, layout.n))

    return draw


def side_by_side(draws: Sequence[Draw]) -> Draw:
    """Tasks of different kinds, one after the other."""

    def draw(rng: np.random.Generator, sets: int) -> Floats:
        return np.hstack([one(rng, sets) for one in draws])

    return draw


# --- layouts -------------------------------------------------------------------------------------


def one_task(n: int, haystacks: int = 0, unequal: bool = False) -> Layout:
    """n samples of one task, in haystacks of equal size or of 0.4 to 1.6 of the mean."""
    if not haystacks:
        return Layout(np.zeros(n, dtype=np.int64))
    weights = np.linspace(0.4, 1.6, haystacks) if unequal else np.ones(haystacks)
    ends = np.round(np.cumsum(weights) / weights.sum() * n).astype(int)
    return Layout(np.zeros(n, dtype=np.int64), np.searchsorted(ends, np.arange(n), side="right"))


def tasks_of(sizes: Sequence[int], haystacks: int = 0) -> Layout:
    """Several tasks, each with so many haystacks or with none."""
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    if not haystacks:
        return Layout(tasks)
    inner = [one_task(size, haystacks).clusters for size in sizes]
    return Layout(
        tasks, np.concatenate([c + 1000 * k for k, c in enumerate(inner) if c is not None])
    )


UNEQUAL = (20, 26, 34, 45, 59, 77, 100, 131, 171, 224, 292, 382, 500)


def task_losses(sizes: Sequence[int], margin: float, where: str) -> Floats:
    """[n] share of losses of every sample so that the mean over tasks is the margin."""
    count = len(sizes)
    if where == "spread":
        per_task = np.full(count, margin)
    elif where == "1/n":
        inverse = 1.0 / np.array(sizes)
        per_task = margin * count * inverse / inverse.sum()
    else:
        per_task = np.zeros(count)
        per_task[{"smallest": 0, "middle": count // 2}[where]] = margin * count
    assert per_task.max() < 0.95, (sizes, margin, where)
    return np.repeat(per_task, sizes)


# --- the rows ------------------------------------------------------------------------------------


def situations() -> Iterator[Situation]:
    """All of them."""
    yield from single_right_wrong()
    yield from graded()
    yield from haystacks()
    yield from macros()
    yield from failures()
    yield from drift()


def single_right_wrong() -> Iterator[Situation]:
    """One right/wrong task: one-sided losses, and losses beside churn."""
    for churn, margins in ((0.0, (0.005, 0.01, 0.02, 0.05, 0.1)), (0.05, (0.01, 0.02, 0.05))):
        for n in (20, 50, 100, 200, 500, 2000):
            for margin in margins:
                layout = one_task(n)
                name = f"right/wrong, n {n}, {_share(churn)} gains"
                yield Situation(
                    name,
                    layout,
                    margin,
                    right_wrong(layout, churn, churn + margin),
                    right_wrong(layout, churn, churn) if churn else None,
                )


def graded() -> Iterator[Situation]:
    """Graded scores: small noise with total losses, and F1."""
    for n in (20, 50, 200, 503, 2000):
        layout = one_task(n)
        for total in (0.01, 0.02, 0.05):
            yield Situation(
                f"graded, n {n}, ±0.03 on 30 %, {_share(total)} total losses",
                layout,
                total,
                noise_and_losses(layout, 0.03, 0.3, total),
                noise_and_losses(layout, 0.03, 0.3, 0.0),
                "t",
                False,
            )
        for name, change, rates in (
            ("zero-inflated F1", 0.3, (0.3, 0.6)),
            ("F1, rare changes", 0.06, (0.05, 0.9)),
        ):
            yield Situation(
                f"{name}, n {n}",
                layout,
                change * (rates[1] - rates[0]) * 2 / 3,
                f1(layout, change, *rates),
                f1(layout, change, 0.4, 0.4),
                "t",
                False,
            )


def haystacks() -> Iterator[Situation]:
    """Samples that share haystacks."""
    for count, each in ((5, 40), (10, 40), (30, 20), (100, 10)):
        for icc in (0.05, 0.2, 1.0):
            for gain, loss in ((0.0, 0.02), (0.0, 0.1), (0.05, 0.15)):
                layout = one_task(count * each, count)
                yield Situation(
                    f"{count} haystacks of {each}, ICC {icc:g}, {_share(gain)} gains",
                    layout,
                    loss - gain,
                    clustered(layout, gain, loss, icc),
                    clustered(layout, gain, gain, icc) if gain else None,
                    "t",
                )
    for count in (10, 100):
        layout = one_task(count * 10, count, unequal=True)
        yield Situation(
            f"{count} haystacks of 4 to 16, ICC 0.2, 5 % gains",
            layout,
            0.1,
            clustered(layout, 0.05, 0.15, 0.2),
            clustered(layout, 0.05, 0.05, 0.2),
            "t",
        )
        yield Situation(
            f"{count} haystacks of 4 to 16, graded",
            layout,
            0.05,
            haystack_shift(layout, -0.05, 0.1, 0.1),
            haystack_shift(layout, 0.0, 0.1, 0.1),
            "t",
            False,
        )


def macros() -> Iterator[Situation]:
    """Macro averages of equal and of very unequal tasks."""
    for sizes in ([60] * 3, [20] * 13, [50] * 13, [200] * 13):
        for where in ("spread", "smallest"):
            for churn in (0.0, 0.02):
                yield _macro(f"{len(sizes)} tasks of {sizes[0]}", sizes, 0.02, where, churn)
    for margin in (0.01, 0.02):
        for where in ("spread", "middle", "smallest", "1/n"):
            for churn in (0.0, 0.02):
                yield _macro("13 tasks of 20 to 500", UNEQUAL, margin, where, churn)
    sizes = (40, 50, 60, 70, 80, 90, 100, 100, 110, 120, 140, 150, 190)
    for where in ("spread", "smallest"):
        yield _macro("13 tasks of 40 to 190", sizes, 0.02, where, 0.03)
    yield _mixed()
    layout = tasks_of([60] * 5, haystacks=12)
    draws = [
        clustered(one_task(60, 12), 0.03, 0.03 + loss, 0.3) for loss in (0.0, 0.0, 0.05, 0.1, 0.1)
    ]
    equal = [clustered(one_task(60, 12), 0.03, 0.03, 0.3)] * 5
    name = "5 tasks of 12 haystacks of 5, ICC 0.3"
    yield Situation(name, layout, 0.05, side_by_side(draws), side_by_side(equal), "t")


def _macro(name: str, sizes: Sequence[int], margin: float, where: str, churn: float) -> Situation:
    layout = tasks_of(sizes)
    loss = task_losses(sizes, margin, where)
    text = {"spread": "in all", "smallest": "in one", "middle": "in one of 100", "1/n": "as 1/n"}
    if len(set(sizes)) > 1:
        text["smallest"] = "in the smallest"
    return Situation(
        f"macro of {name}, loss {text[where]}, {_share(churn)} gains",
        layout,
        margin,
        right_wrong(layout, churn, loss + churn),
        right_wrong(layout, churn, churn) if churn else None,
    )


def _mixed() -> Situation:
    """Right/wrong and graded tasks in one average."""
    sizes = [50, 100, 150, 100, 50, 200]
    layouts = [one_task(size) for size in sizes]
    kinds: list[tuple[Draw, Draw]] = []
    for k, layout in enumerate(layouts):
        if k % 2:
            kinds.append((f1(layout, 0.3, 0.35, 0.5), f1(layout, 0.3, 0.4, 0.4)))
        else:
            loss = right_wrong(layout, 0.02, 0.05)
            kinds.append((loss, right_wrong(layout, 0.02, 0.02)))
    return Situation(
        "macro of 6 tasks of 50 to 200, right/wrong and F1",
        tasks_of(sizes),
        0.03,
        side_by_side([kind[0] for kind in kinds]),
        side_by_side([kind[1] for kind in kinds]),
        "score",
        False,
    )


def failures() -> Iterator[Situation]:
    """Answers that fail in one arm or in both, at random or just where the arm loses."""
    layout = one_task(500)
    for arm, base, hiding in ((0.01, 0.0, False), (0.0, 0.05, False), (0.0, 0.05, True)):
        at = " where the arm loses" if hiding else ""
        who = f"{_share(arm)} of the arm, {_share(base)} of the baseline"
        yield Situation(
            f"n 500, failed: {who}{at}",
            layout,
            0.05,
            right_wrong(layout, 0.01, 0.06),
            right_wrong(layout, 0.01, 0.01),
            failures=(arm, base, hiding),
        )


def drift() -> Iterator[Situation]:
    """A baseline run twice; the arm's own run drifted as far as the second, half as far, or not."""
    layout, margin, churn = one_task(500), 0.05, 0.02
    for drifted in (0.0, 0.03, -0.03):
        for share in (0.0, 0.5, 1.0) if drifted else (0.0,):
            loss = churn + margin - share * drifted  # as measured against the first run
            up, down = churn + max(0.0, drifted), churn + max(0.0, -drifted)
            yield Situation(
                f"n 500, second run {100 * drifted:+g} points, {share:g} of it in the arm",
                layout,
                margin,
                right_wrong(layout, churn, loss),
                None,
                repeat=second_run(up / (1.0 - loss), down / (1.0 - churn)),
            )


def second_run(gain: float, loss: float) -> Callable[[np.random.Generator, Floats], Floats]:
    """Second run of the baseline minus the first, beside an arm minus the first of -1, 0, 1.

    Gains are possible only where the first run was wrong, so not where the arm lost.
    """

    def draw(rng: np.random.Generator, d: Floats) -> Floats:
        gained = (d >= 0.0) & (rng.random(d.shape) < gain)
        lost = (d <= 0.0) & ~gained & (rng.random(d.shape) < loss)
        return gained.astype(float) - lost

    return draw


def _share(value: float) -> str:
    return f"{100 * value:g} %"
