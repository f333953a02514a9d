"""False decisions and samples spent when `run --until-decided` looks after every sample.

    python benchmarks/stopping.py --seed 0

A run draws right/wrong differences until the benchmark is spent; both verdicts are looked up after
every sample. "false" is the share of runs with a wrong verdict at any look: at the margin both
verdicts are wrong, elsewhere one. "stopped at" is the mean number of samples when decided (the
whole benchmark where it is not). The second table is about the average of several tasks, each
stopped at the look of 32 that decides it, and judged by `evalkit.stats.compare` as in a run; "bias"
is that of the average's estimate. In both the looks have the share of the chance of error that a
run gives them. Prints Markdown (docs/statistics.md).
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from evalkit.stats import (
    ArmScores,
    Drawing,
    Options,
    compare,
    looking_confidence,
    sequential_decision,
)
from evalkit.stats.confidence_sequence import first_refuted

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
CASES = (  # margin, share of samples that differ, true difference
    (0.02, 0.05, -0.02),
    (0.02, 0.2, -0.02),
    (0.05, 0.1, -0.05),
    (0.05, 0.4, -0.05),
    (0.02, 0.02, 0.0),
    (0.02, 0.1, 0.0),
    (0.05, 0.02, 0.0),
    (0.05, 0.1, 0.0),
    (0.05, 0.2, -0.15),
    (0.05, 0.4, -0.3),
)


def draw(rng: np.random.Generator, size: int, share: float, delta: float, question: str) -> Floats:
    """Differences of one run: a fresh sample, or a permutation of a fixed benchmark."""
    if question == "tasks":
        u = rng.random(size)
        gain, loss = (share + delta) / 2, (share - delta) / 2
        return np.where(u < gain, 1.0, np.where(u > 1 - loss, -1.0, 0.0))
    gains = round(size * (share + delta) / 2)
    losses = gains - round(size * delta)  # the benchmark's difference is delta exactly
    return rng.permutation(np.repeat([1.0, -1.0, 0.0], [gains, losses, size - gains - losses]))


MACRO_CASES = (  # sizes, margin of the tasks, of the average, churn, loss of every task
    ((200, 200, 200), 0.05, 0.05, 0.0, (0.05, 0.05, 0.05)),
    ((200, 200, 200), 0.05, 0.05, 0.05, (0.05, 0.05, 0.05)),
    ((200, 200, 200), 0.1, 0.05, 0.02, (0.05, 0.05, 0.05)),
    ((100, 300, 500), 0.05, 0.05, 0.0, (0.15, 0.0, 0.0)),
    ((100, 300, 500), 0.05, 0.05, 0.02, (0.0, 0.0, 0.15)),
    ((300,), 0.05, 0.05, 0.02, (0.05,)),
    ((200, 200, 200), 0.05, 0.05, 0.0, (0.0, 0.0, 0.0)),
    ((200, 200, 200), 0.05, 0.05, 0.02, (0.0, 0.0, 0.0)),
    ((200, 200, 200), 0.05, 0.05, 0.02, (0.3, 0.2, 0.4)),
)
LOOK = 32
LOOKING = looking_confidence(0.95)


def macro_run(rng: np.random.Generator, case: tuple, estimates: list[float]) -> str:
    """One run: every task stopped at the look that decides it, then the average's verdict."""
    sizes, task_margin, margin, churn, losses = case
    order, drawn, scores = {}, [], {"base": [], "arm": []}
    for k, (size, loss) in enumerate(zip(sizes, losses, strict=True)):
        u = rng.random(size)
        d = np.where(u < churn, 1.0, np.where(u > 1 - churn - loss, -1.0, 0.0))
        _, at = sequential_decision(d, task_margin, size, "tasks", confidence=LOOKING)
        n = size if at is None else min(size, -(-at // LOOK) * LOOK)
        order[f"t{k}"] = [f"t{k}/{i}" for i in range(size)]
        drawn += order[f"t{k}"][:n]
        scores["base"] += np.where(d > 0, 0.0, 1.0)[:n].tolist()
        scores["arm"] += np.where(d < 0, 0.0, 1.0)[:n].tolist()
    tasks = [name.partition("/")[0] for name in drawn]
    arms = {name: ArmScores(drawn, tasks, values) for name, values in scores.items()}
    drawing = Drawing("tasks", order, {task: [""] * len(ids) for task, ids in order.items()})
    row = compare(arms, "base", Options(margin=margin, drawing=drawing)).row("arm")
    estimates.append(row.result.delta + float(np.mean(losses)))
    return "no worse" if row.verdict == "better" else str(row.verdict)


def macro_table(args: argparse.Namespace) -> None:
    """False verdicts of the average when its tasks are stopped."""
    print("\n| tasks | their margin | its margin | gains | losses | no worse % | worse % | bias |")
    print("|---|---:|---:|---:|---|---:|---:|---:|")
    for number, case in enumerate(MACRO_CASES):
        rng = np.random.default_rng([args.seed, number])
        estimates: list[float] = []
        words = [macro_run(rng, case, estimates) for _ in range(args.macro_runs)]
        no_worse, worse = (100 * words.count(word) / len(words) for word in ("no worse", "worse"))
        sizes, task_margin, margin, churn, losses = case
        print(
            f"| {', '.join(map(str, sizes))} | {task_margin:g} | {margin:g} | {100 * churn:g} % "
            f"| {', '.join(f'{loss:g}' for loss in losses)} | {no_worse:.1f} | {worse:.1f} "
            f"| {np.mean(estimates):+.3f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--macro-runs", type=int, default=2000)
    parser.add_argument("--size", type=int, default=500)
    args = parser.parse_args()
    print(f"Command: python benchmarks/stopping.py {' '.join(sys.argv[1:])}\n")
    print("| margin | differ | true difference | question | false % | decided % | stopped at |")
    print("|---:|---:|---:|---|---:|---:|---:|")
    for margin, share, delta in CASES:
        for question in ("benchmark", "tasks"):
            rng = np.random.default_rng([args.seed, round(1e4 * margin), round(1e4 * share)])
            population = args.size if question == "benchmark" else None
            null = np.array([(1 - margin) / 2])
            false, decided, spent = 0, 0, 0.0
            for _ in range(args.runs):
                x = (draw(rng, args.size, share, delta, question) + 1) / 2
                no_worse = float(first_refuted(x, null, population, LOOKING)[0])
                worse = float(first_refuted(1 - x, 1 - null, population, LOOKING)[0])
                first = min(no_worse, worse)
                decided += first < args.size
                spent += min(first + 1, args.size)
                wrong = no_worse if delta < -margin else worse
                false += (first if abs(delta + margin) < 1e-9 else wrong) < args.size
            print(
                f"| {margin:g} | {100 * share:g} % | {delta:g} | {question} "
                f"| {100 * false / args.runs:.1f} | {100 * decided / args.runs:.0f} "
                f"| {spent / args.runs:.0f} |",
                flush=True,
            )
    macro_table(args)


if __name__ == "__main__":
    main()
