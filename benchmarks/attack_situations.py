"""Simulated evaluations for attacks.py: data sets whose true difference is minus the margin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalkit.stats import ArmScores, Drawing, Options, looking_confidence, sequential_decision

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
LOOK = 32


@dataclass(frozen=True)
class Samples:
    """Tasks and haystacks of the samples, and their ids."""

    tasks: Sequence[str]
    clusters: Sequence[str] = ()

    @property
    def ids(self) -> list[str]:
        """In the order given."""
        return [f"{k:05d}" for k in range(len(self.tasks))]

    def arm(self, scores: Floats, failed: Floats | None = None) -> ArmScores:
        """Scores of one arm on them."""
        errors = [] if failed is None else failed.astype(bool).tolist()
        clipped = np.clip(scores, 0.0, 1.0).tolist()
        return ArmScores(self.ids, self.tasks, clipped, self.clusters, errors)


@dataclass(frozen=True)
class Data:
    """One data set: arms, the baseline named "base", and what is looked at.

    Attributes:
        arms: scores by name.
        options: of the comparison.
        rows: (arm, task) whose verdict is false.
        together: whether a false verdict anywhere counts, or the rows count one by one.
    """

    arms: dict[str, ArmScores]
    options: Options
    rows: tuple[tuple[str, str], ...] = (("arm", "macro"),)
    together: bool = True


Attack = Callable[[np.random.Generator], Data]


def pair(d: Floats, samples: Samples, margin: float, **options: object) -> Data:
    """A baseline and an arm with the differences d."""
    base = samples.arm(1.0 - np.maximum(d, 0.0))
    return Data(
        {"base": base, "arm": samples.arm(1.0 + np.minimum(d, 0.0))},
        Options(margin=margin, **options),  # type: ignore[arg-type]
    )


def flips(rng: np.random.Generator, n: int, loss: Floats | float, gain: float = 0.0) -> Floats:
    """[n] -1, 0 or 1."""
    u = rng.random(n)
    return np.where(u < loss, -1.0, np.where(u > 1.0 - gain, 1.0, 0.0))


def of_sizes(sizes: Sequence[int] | Floats, task: str = "t") -> Samples:
    """One task whose haystacks have these sizes."""
    which = np.repeat(np.arange(len(sizes)), np.asarray(sizes, dtype=int))
    return Samples([task] * len(which), [f"h{c}" for c in which.tolist()])


def whole(values: Floats, sizes: Sequence[int] | Floats) -> Floats:
    """[n] the value of its haystack for every sample."""
    return np.repeat(values, np.asarray(sizes, dtype=int))


# --- haystacks -----------------------------------------------------------------------------------


def big_lost(big: tuple[int, int], small: tuple[int, int], margin: float) -> Attack:
    """Haystacks of two sizes, (how many, of what size); only big ones are lost, whole."""
    sizes = np.repeat([big[1], small[1]], [big[0], small[0]])
    chance = margin * sizes.sum() / (big[0] * big[1])

    def draw(rng: np.random.Generator) -> Data:
        lost = np.where(sizes == big[1], rng.random(len(sizes)) < chance, False)
        return pair(-whole(lost.astype(float), sizes), of_sizes(sizes), margin)

    return draw


def drawn_sizes(
    count: int, sizes: Sequence[int], share: Sequence[float], margin: float, seen: bool = False
) -> Attack:
    """Haystacks whose sizes are drawn too; the chance of being lost whole grows with the size.

    With `seen` only those data sets are taken that hold a haystack of the last size.
    """
    of, weight = np.array(sizes), np.array(share) / np.sum(share)
    chance = of * margin * (of @ weight) / (of**2 @ weight)
    assert chance.max() <= 1.0, chance

    def draw(rng: np.random.Generator) -> Data:
        kind = rng.choice(len(of), count, p=weight)
        while seen and not (kind == len(of) - 1).any():
            kind = rng.choice(len(of), count, p=weight)
        lost = rng.random(count) < chance[kind]
        return pair(-whole(lost.astype(float), of[kind]), of_sizes(of[kind]), margin)

    return draw


def good_and_bad(count: int, each: int, margin: float) -> Attack:
    """Haystacks that are gained whole, or lost whole, or half of each."""

    def draw(rng: np.random.Generator) -> Data:
        state = rng.choice([-1.0, 0.0, 1.0, 2.0], count, p=[margin + 0.1, 0.6 - margin, 0.1, 0.2])
        d = whole(state, [each] * count)
        half = np.where(np.arange(count * each) % 2 == 0, 1.0, -1.0)
        return pair(np.where(d == 2.0, half, d), of_sizes([each] * count), margin)

    return draw


def texts_of_several_tasks(count: int, margin: float, noise: float) -> Attack:
    """The same texts under three tasks, of one, three and two questions; a text is lost whole."""
    tasks, texts = [], []
    for text in range(count):
        several = [("a", 1), ("b", 3)] + ([("c", 2)] if text % 2 else [])
        for task, questions in several:
            tasks += [task] * questions
            texts += [text] * questions
    samples = Samples(tasks, [f"h{t}" for t in texts])

    def draw(rng: np.random.Generator) -> Data:
        lost = (rng.random(count) < margin)[texts]
        other = flips(rng, len(texts), noise, noise)
        return pair(np.where(lost, -1.0, other), samples, margin)

    return draw


def contexts_of_questions(margin: float, churn: float) -> Attack:
    """503 questions on 445 contexts, right and wrong; contexts with several fall together."""
    sizes = [1] * 400 + [2] * 35 + [3] * 7 + [4] * 3
    sizes[-1] += 503 - sum(sizes)

    def draw(rng: np.random.Generator) -> Data:
        d = whole(flips(rng, len(sizes), margin + churn, churn), sizes)
        return pair(d, of_sizes(sizes), margin)

    return draw


# --- scores --------------------------------------------------------------------------------------


def coarse_grid(n: int, falls: Sequence[float]) -> Attack:
    """Scores 0, 1/3 and 1; what is lost and gained depends on what the baseline had.

    Args:
        n: samples.
        falls: chances of 1 -> 0, 1 -> 1/3, 1/3 -> 0, and of 1/3 -> 1.
    """
    half, third = 0.5, 1.0 / 3.0
    margin = half * (falls[0] + falls[1] * 2 / 3) + half * (falls[2] / 3 - falls[3] * 2 / 3)

    def draw(rng: np.random.Generator) -> Data:
        base, u = np.where(rng.random(n) < half, 1.0, third), rng.random(n)
        down = np.where(u < falls[0], 0.0, np.where(u < falls[0] + falls[1], third, 1.0))
        up = np.where(u < falls[2], 0.0, np.where(u > 1.0 - falls[3], 1.0, third))
        samples = Samples(["t"] * n)
        arm = np.where(base == 1.0, down, up)
        return Data({"base": samples.arm(base), "arm": samples.arm(arm)}, Options(margin=margin))

    return draw


def rare_parts(n: int, loss: float, gain: float, part: float, size: float) -> Attack:
    """Right/wrong but for a few samples that change by a part: the data choose the test."""
    margin = loss - gain - part * size

    def draw(rng: np.random.Generator) -> Data:
        d = np.where(rng.random(n) < part / (1 - loss - gain), size, 0.0)
        whole_steps = flips(rng, n, loss, gain)
        return pair(np.where(whole_steps != 0.0, whole_steps, d), Samples(["t"] * n), margin)

    return draw


# --- tasks ---------------------------------------------------------------------------------------


def tasks_that_differ(
    sizes: Sequence[int], losses: Sequence[float], gains: Sequence[float]
) -> Attack:
    """Right/wrong tasks with gains and losses of their own."""
    tasks = [f"t{k}" for k, n in enumerate(sizes) for _ in range(n)]
    loss, gain = (np.repeat(np.array(x), sizes) for x in (losses, gains))
    margin = float(np.mean(losses) - np.mean(gains))

    def draw(rng: np.random.Generator) -> Data:
        u = rng.random(len(tasks))
        d = np.where(u < loss, -1.0, np.where(u > 1.0 - gain, 1.0, 0.0))
        return pair(d, Samples(tasks), margin)

    return draw


def margins_of_tasks(sizes: Sequence[int], margins: Sequence[float]) -> Attack:
    """Every task loses its own margin, the average its own."""
    tasks = [f"t{k}" for k, n in enumerate(sizes) for _ in range(n)]
    loss = np.repeat(np.array(margins), sizes)
    own = {f"t{k}": margin for k, margin in enumerate(margins)}
    rows = tuple(("arm", task) for task in (*own, "macro"))

    def draw(rng: np.random.Generator) -> Data:
        d = flips(rng, len(tasks), loss + 0.02, 0.02)
        data = pair(d, Samples(tasks), float(np.mean(margins)), margins=own)
        return replace(data, rows=rows, together=False)

    return draw


# --- several arms --------------------------------------------------------------------------------


def arms_of_a_family(arms: int, n: int, margin: float, alike: float, family: str) -> Attack:
    """Arms that lose exactly the margin; a share of what they lose is the same samples."""
    samples = Samples(["t"] * n)

    def draw(rng: np.random.Generator) -> Data:
        shared = rng.random(n) < margin
        scores = {"base": samples.arm(np.ones(n))}
        for k in range(arms):
            lost = np.where(rng.random(n) < alike, shared, rng.random(n) < margin)
            scores[f"arm{k}"] = samples.arm(1.0 - lost)
        rows = tuple((name, "macro") for name in scores if name != "base")
        return Data(scores, Options(margin=margin, family=family), rows)  # type: ignore[arg-type]

    return draw


# --- failures and a second run -------------------------------------------------------------------


def hard_ones_fail(count: int, each: int, margin: float) -> Attack:
    """Hard haystacks: the baseline's answers fail on most that the arm loses."""
    sizes = [each] * count

    def draw(rng: np.random.Generator) -> Data:
        lost = whole((rng.random(count) < margin).astype(float), sizes)
        failed = lost * (rng.random(count * each) < 0.8)
        samples = of_sizes(sizes)
        arms = {"base": samples.arm(1.0 - failed, failed), "arm": samples.arm(1.0 - lost)}
        return Data(arms, Options(margin=margin))

    return draw


def second_run(
    drifts: Sequence[float], of_the_arm: Sequence[float], n: int, margin: float, seen: int
) -> Attack:
    """Tasks of n whose second run differs by its drift; the arm's run drifted by a share of it.

    Args:
        drifts: second run minus first, by task.
        of_the_arm: share of it that the arm's own run had.
        n: samples of a task.
        margin: what the arm truly loses.
        seen: tasks that the second run has.
    """
    tasks = [f"t{k}" for k in range(len(drifts)) for _ in range(n)]
    drift = np.repeat(np.array(drifts), n)
    share = np.repeat(np.array(of_the_arm), n)
    samples, there = Samples(tasks), seen * n
    again = Samples(tasks[:there])

    def draw(rng: np.random.Generator) -> Data:
        u = rng.random(len(tasks))  # one threshold a sample: runs nest
        scores = {
            name: (u < 0.6 + shift).astype(float)
            for name, shift in (("base", 0.0), ("again", drift))
        }
        v = np.where(rng.random(len(tasks)) < 0.1, rng.random(len(tasks)), u)
        arm = (v < 0.6 + share * drift - margin).astype(float)
        arms = {
            "base": samples.arm(scores["base"]),
            "arm": samples.arm(arm),
            "again": again.arm(scores["again"][:there]),
        }
        return Data(arms, Options(margin=margin, repeat="again"))

    return draw


# --- stopped when decided ------------------------------------------------------------------------


def until_decided(
    blocks: Callable[[np.random.Generator], dict[str, tuple[Floats, Floats]]],
    margin: float,
    question: str = "tasks",
) -> Attack:
    """Tasks stopped at the look that decides them.

    Args:
        blocks: draws by task the difference of every haystack (all its samples share it) and its
            size, in the order drawn.
        margin: of tasks and average.
        question: a key of `evalkit.stats.QUESTIONS`.
    """

    def draw(rng: np.random.Generator) -> Data:
        order: dict[str, list[str]] = {}
        labels: dict[str, list[str]] = {}
        kept: dict[str, list[float]] = {}
        for task, (values, sizes) in blocks(rng).items():
            d = whole(values, sizes)
            names = whole(np.arange(len(sizes)), sizes).astype(int).tolist()
            labels[task] = [f"{task} h{c}" for c in names]
            order[task] = [f"{task}/{k:05d}" for k in range(len(d))]
            _, at = sequential_decision(
                d,
                margin,
                len(d),
                question,
                clusters=labels[task],
                confidence=looking_confidence(0.95),
            )
            end = len(d) if at is None else min(len(d), -(-at // LOOK) * LOOK)
            kept[task] = d[:end].tolist()
        ids = [name for task, d in kept.items() for name in order[task][: len(d)]]
        tasks = [name.partition("/")[0] for name in ids]
        clusters = [c for task, d in kept.items() for c in labels[task][: len(d)]]
        d = np.concatenate([np.array(x) for x in kept.values()])
        arms = {
            "base": ArmScores(ids, tasks, (1 - np.maximum(d, 0)).tolist(), clusters),
            "arm": ArmScores(ids, tasks, (1 + np.minimum(d, 0)).tolist(), clusters),
        }
        drawing = Drawing(question, order, labels)
        return Data(arms, Options(margin=margin, drawing=drawing))

    return draw


def independent(
    sizes: Sequence[int], chances: Sequence[float], tasks: int = 1
) -> Callable[[np.random.Generator], dict[str, tuple[Floats, Floats]]]:
    """Haystacks of these sizes in random order, each lost whole with its chance."""
    of, chance = np.array(sizes), np.array(chances)

    def draw(rng: np.random.Generator) -> dict[str, tuple[Floats, Floats]]:
        blocks = {}
        for task in range(tasks):
            order = rng.permutation(len(of))
            lost = -(rng.random(len(of)) < chance[order]).astype(float)
            blocks[f"t{task}"] = (lost, of[order])
        return blocks

    return draw


def fixed_benchmark(
    sizes: Sequence[int], values: Sequence[float]
) -> Callable[[np.random.Generator], dict[str, tuple[Floats, Floats]]]:
    """The same haystacks with the same differences, in random order."""
    of, d = np.array(sizes), np.array(values)

    def draw(rng: np.random.Generator) -> dict[str, tuple[Floats, Floats]]:
        order = rng.permutation(len(of))
        return {"t": (d[order], of[order])}

    return draw
