"""False verdicts where somebody looks for them: situations that the table of coverage.py lacks.

    python benchmarks/attacks.py --seed 0

Every data set has a true difference of exactly minus the margin, so that "no worse", "better" and
"worse" are false, and passes through `evalkit.stats.compare`. "false no worse" and "false worse"
are the shares of data sets with such a verdict: of several arms those with one anywhere, of several
tasks the largest share. Promised is 2.5 % at most. Prints Markdown (docs/statistics.md).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from attack_situations import (
    Attack,
    arms_of_a_family,
    big_lost,
    coarse_grid,
    contexts_of_questions,
    drawn_sizes,
    fixed_benchmark,
    good_and_bad,
    hard_ones_fail,
    independent,
    margins_of_tasks,
    rare_parts,
    second_run,
    tasks_that_differ,
    texts_of_several_tasks,
    until_decided,
)

from evalkit.stats import arm_decisions, compare

arm_decisions.what_decides = lambda *_: ()  # reasons change no verdict and cost more than it


# --- the rows ------------------------------------------------------------------------------------


def attacks() -> Iterator[tuple[str, Attack]]:
    """Rows of the table."""
    yield "30 haystacks of 40 beside 4 of 10, losses in the 30", big_lost((30, 40), (4, 10), 0.1)
    yield "30 haystacks of 40 beside 400 of 1, losses in the 30", big_lost((30, 40), (400, 1), 0.1)
    yield "30 haystacks gained, lost, or half of each", good_and_bad(30, 10, 0.1)
    yield "40 texts under three tasks", texts_of_several_tasks(40, 0.1, 0.0)
    yield "40 texts under three tasks, 5 % churn", texts_of_several_tasks(40, 0.15, 0.05)
    yield "503 questions on 445 contexts, 8 % churn", contexts_of_questions(0.05, 0.08)
    yield "503 questions on 445 contexts, no gains", contexts_of_questions(0.02, 0.0)
    for count in (30, 100):
        sizes, share = range(1, 11), [1] * 10
        name = f"{count} haystacks of 1 to 10, sizes drawn, big ones lost more often"
        yield name, drawn_sizes(count, sizes, share, 0.1)
    yield "60 haystacks of 3, 1 in 10 of 20, big ones lost", drawn_sizes(60, (3, 20), (9, 1), 0.1)
    yield "30 haystacks of 3, 1 in 20 of 60, big ones lost", drawn_sizes(30, (3, 60), (19, 1), 0.2)
    yield (
        "the same where one of 60 is among them",
        drawn_sizes(30, (3, 60), (19, 1), 0.2, seen=True),
    )
    yield "grid 0, 1/3, 1, n 60, only losses", coarse_grid(60, (0.06, 0.1, 0.05, 0.0))
    yield "grid 0, 1/3, 1, n 200, losses and gains", coarse_grid(200, (0.06, 0.1, 0.05, 0.1))
    yield "right/wrong, n 73, 1 % lose a third", rare_parts(73, 0.05, 0.0, 0.01, -1 / 3)
    yield "right/wrong, n 40, 2 % gain a third, 5 % churn", rare_parts(40, 0.2, 0.05, 0.02, 1 / 3)
    yield "right/wrong, n 40, 2 % lose a half, 5 % churn", rare_parts(40, 0.2, 0.05, 0.02, -0.5)
    yield "4 tasks of 25, loss in one", tasks_that_differ([25] * 4, [0.4, 0, 0, 0], [0] * 4)
    yield (
        "4 tasks of 25, two lose, two gain",
        tasks_that_differ([25] * 4, [0.4, 0.3, 0, 0], [0, 0, 0.2, 0.1]),
    )
    yield "tasks of 2, 3, 5, 500", tasks_that_differ([2, 3, 5, 500], [0.9, 0.7, 0.5, 0.3], [0] * 4)
    yield "tasks of 5, 5, 5, 500", tasks_that_differ([5, 5, 5, 500], [0.5, 0.5, 0.5, 0.5], [0] * 4)
    yield "margins of 3, 6 and 10 points", margins_of_tasks([300, 200, 100], [0.03, 0.06, 0.1])
    for family in ("each", "all"):
        yield f"12 arms alike, family {family}", arms_of_a_family(12, 150, 0.08, 0.5, family)
    yield "the baseline fails on hard haystacks", hard_ones_fail(60, 4, 0.1)
    yield "second run: one task of four drifts", second_run([0.1, 0, 0, 0], [0.5] * 4, 200, 0.05, 4)
    yield (
        "second run: two tasks drift apart, the arm with one",
        second_run([0.1, -0.1], [1.0, 0.0], 300, 0.05, 2),
    )
    yield (
        "second run: two tasks drift apart a little, the arm with one",
        second_run([0.04, -0.04], [1.0, 0.0], 150, 0.05, 2),
    )
    yield (
        "second run: six tasks of 100 drift apart a little, the arm with three",
        second_run([0.03, -0.03] * 3, [1.0, 0.0] * 3, 100, 0.05, 6),
    )
    yield (
        "second run: lacks the last task, half of the drift in the arm",
        second_run([0.12, 0.12, 0.0], [0.5, 0.5, 0.0], 300, 0.05, 2),
    )
    yield from stopped()


def stopped() -> Iterator[tuple[str, Attack]]:
    """Runs that stop when decided."""
    sizes = [1, 40] * 15
    chances = [0.0, 0.2 * 41 / 40] * 15
    yield "until decided: 30 haystacks of 1 and 40", until_decided(independent(sizes, chances), 0.2)
    chances = [0.9, 0.0] * 100
    yield (
        "until decided: 200 haystacks of 1 and 3, small ones lost",
        until_decided(independent([1, 3] * 100, chances), 0.9 / 4),
    )
    yield (
        "until decided: 200 haystacks of 1 and 10, big ones lost",
        until_decided(independent([1, 10] * 100, [0.0, 0.22] * 100), 0.2),
    )
    yield (
        "until decided: 2 tasks of 60 haystacks of 1 and 10",
        until_decided(independent([1, 10] * 30, [0.0, 0.33] * 30, tasks=2), 0.3),
    )
    values = [0.0] * 80 + [-1.0] * 20 + [0.0] * 70 + [-1.0] * 30
    of = [1] * 100 + [5] * 100
    lost = -float(np.dot(values, of)) / sum(of)
    yield (
        "until decided, the whole benchmark: haystacks of 1 and 5",
        until_decided(fixed_benchmark(of, values), lost, "benchmark"),
    )


def row(name: str, attack: Attack, args: argparse.Namespace) -> str:
    """One row of the table."""
    rng = np.random.default_rng([args.seed, int.from_bytes(name.encode(), "little") % 2**64])
    false = []
    for _ in range(args.datasets):
        data = attack(rng)
        options = replace(data.options, method="t")  # of the interval: no verdict rests on it
        found = compare(data.arms, "base", options)
        words = [found.row(*where).verdict for where in data.rows]
        flags = np.array([(word in ("no worse", "better"), word == "worse") for word in words])
        false.append(flags.any(axis=0, keepdims=True) if data.together else flags)
    rates = np.mean(false, axis=0).max(axis=0)
    error = 100 * math.sqrt(0.025 * 0.975 / args.datasets)
    margin = data.options.margin
    shown = " | ".join(f"{100 * rate:.2f}" for rate in rates)
    return f"| {name} | {margin:.3g} | {args.datasets:,} | {shown} | ±{error:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--datasets", type=int, default=2000)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    args = parser.parse_args()
    print(f"Command: python benchmarks/attacks.py {' '.join(sys.argv[1:])}\n")
    print("| situation | margin | data sets | false no worse | false worse | error at 2.5 % |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, attack in attacks():
        if args.only in name:
            print(row(name, attack, args), flush=True)


if __name__ == "__main__":
    main()
