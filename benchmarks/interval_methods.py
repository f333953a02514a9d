# ruff: noqa: E402  (the number of threads is set before NumPy loads)
"""Coverage of the older interval methods and size of the tests, by simulation.

    python benchmarks/interval_methods.py --seed 0 --n 50 200

For every situation and n, data sets are drawn whose true difference is known; a method covers
when its interval holds it. Size is the share of p-values <= 0.05 where the true difference is 0.
Prints two Markdown tables. Closed-form methods see `--datasets`
data sets, bootstraps `--bootstraps` of them with `--resamples` resamples each, sign flips 1,000.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import math
import sys
from functools import cache

import numpy as np
from interval_situations import Floats, Ints, Layout, Situation, situations

from evalkit.stats.bootstrap import METHODS as BOOTSTRAPS
from evalkit.stats.closed_form_intervals import newcombe_paired
from evalkit.stats.design import IntervalOptions
from evalkit.stats.inputs import split
from evalkit.stats.macro_bootstrap import draw
from evalkit.stats.macro_bootstrap import results as bootstrap_results
from evalkit.stats.score_interval import closed_form
from evalkit.stats.significance import mcnemar, sign_flip_parts

BATCH = 250
SIGN_FLIPS = 1000
INTERVALS = ("score", "t", "newcombe", "percentile", "bca", "studentized", "no clusters")
TESTS = ("score", "t", "mcnemar", "mid-p", "sign flip", "percentile", "bca", "studentized")


def evaluate(
    situation: Situation, n: int, args: argparse.Namespace
) -> tuple[dict[str, float], dict[str, float]]:
    """Coverage of every interval and size of every test, as shares; situations vary the stream."""
    layout = situation.layout(n)
    name = int.from_bytes(situation.name.encode(), "little")
    rng = np.random.default_rng([args.seed, n, name])
    covered: dict[str, list[bool]] = {}
    rejected: dict[str, list[bool]] = {}
    done = 0
    while done < args.datasets:
        a, b, truth = situation.draw(rng, BATCH, n, layout)
        methods = ["score", "t"]
        if done < args.bootstraps:
            methods += BOOTSTRAPS
        found = intervals(a - b, layout, methods, args.resamples, seed=done)
        if layout.clusters is not None:
            alone = Layout(layout.strata, None)
            found["no clusters"] = intervals(a - b, alone, ["score"], 0, 0)["score"]
        if situation.binary and layout.clusters is None:
            found["newcombe"] = newcombe(a, b, layout.strata)
            if layout.strata is None:
                mcnemars(a, b, rejected)
        if done < SIGN_FLIPS:
            rejected.setdefault("sign flip", []).extend(flips(a - b, layout, args.resamples))
        for method, rows in found.items():
            holds = (rows[:, 0] <= truth + 1e-8) & (rows[:, 1] >= truth - 1e-8)
            covered.setdefault(method, []).extend(holds.tolist())
            rejected.setdefault(method, []).extend((rows[:, 2] <= 0.05).tolist())
        done += BATCH
    coverage = {method: float(np.mean(values)) for method, values in covered.items()}
    size = {method: float(np.mean(values)) for method, values in rejected.items()}
    return coverage, {} if situation.effect else size


def intervals(
    d: Floats, layout: Layout, methods: list[str], resamples: int, seed: int
) -> dict[str, Floats]:
    """[data sets, (low, high, p)] by method; data sets are rows, so they share resamples."""
    parts = split(d, layout.strata, layout.clusters)
    found = {}
    for method in methods:
        if method in BOOTSTRAPS:
            options = IntervalOptions(method, 0.95, resamples, seed)
            draws = [draw(part, options) for part in parts]
            rows = bootstrap_results(parts, draws, options)
        else:
            rows = tuple(closed_form(arm, parts, method, 0.95) for arm in range(len(d)))
        found[method] = np.array([[r.low, r.high, r.p_value] for r in rows])
    return found


def newcombe(a: Floats, b: Floats, strata: Ints | None) -> Floats:
    """[data sets, (low, high, p)] of Newcombe's interval, p only as reached or not at 5 %."""
    labels = np.zeros(a.shape[1], dtype=int) if strata is None else strata
    tasks = np.unique(labels)
    rows = []
    tables = []
    for task in tasks:
        x, y = a[:, labels == task], b[:, labels == task]
        both, only_a, only_b = (x * y).sum(1), (x * (1 - y)).sum(1), ((1 - x) * y).sum(1)
        tables.append(np.stack([both, only_a, only_b, x.shape[1] - both - only_a - only_b], 1))
    for one in np.stack(tables, 1).astype(int):
        middle = [(t[1] - t[2]) / t.sum() for t in one]
        ends = [cached_newcombe(*map(int, t)) for t in one]
        down = math.sqrt(sum((m - low) ** 2 for m, (low, _) in zip(middle, ends, strict=True)))
        up = math.sqrt(sum((high - m) ** 2 for m, (_, high) in zip(middle, ends, strict=True)))
        low, high = np.mean(middle) - down / len(one), np.mean(middle) + up / len(one)
        rows.append([low, high, 1.0 if low <= 0 <= high else 0.0])
    return np.array(rows)


cached_newcombe = cache(newcombe_paired)
cached_mcnemar = cache(mcnemar)


def mcnemars(a: Floats, b: Floats, rejected: dict[str, list[bool]]) -> None:
    """Add the decisions of McNemar's exact and mid-p tests at 5 %."""
    only_a, only_b = (a > b).sum(1).tolist(), (b > a).sum(1).tolist()
    for name, mid in (("mcnemar", False), ("mid-p", True)):
        rejected.setdefault(name, []).extend(
            cached_mcnemar(x, y, mid_p=mid) <= 0.05 for x, y in zip(only_a, only_b, strict=True)
        )


def flips(d: Floats, layout: Layout, resamples: int) -> list[bool]:
    """Decisions of the sign-flip test at 5 %."""
    parts = split(d, layout.strata, layout.clusters)
    return [sign_flip_parts(arm, parts, min(999, resamples), arm) <= 0.05 for arm in range(len(d))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--datasets", type=int, default=10_000)
    parser.add_argument("--bootstraps", type=int, default=3000)
    parser.add_argument("--resamples", type=int, default=1999)
    parser.add_argument("--n", type=int, nargs="+", default=[20, 50, 200, 500])
    parser.add_argument("--only", default="", help="situations whose name holds this")
    args = parser.parse_args()
    sizes = []
    print(f"Command: python benchmarks/interval_methods.py {' '.join(sys.argv[1:])}\n")
    print(f"| situation | n | {' | '.join(INTERVALS)} |")
    print("|---|---:|" + "---:|" * len(INTERVALS))
    for situation in situations():
        if args.only not in situation.name:
            continue
        for n in args.n:
            coverage, size = evaluate(situation, n, args)
            print(f"| {situation.name} | {n} | {cells(coverage, INTERVALS)} |", flush=True)
            if size:
                sizes.append(f"| {situation.name} | {n} | {cells(size, TESTS)} |")
    print(f"\n| situation | n | {' | '.join(TESTS)} |")
    print("|---|---:|" + "---:|" * len(TESTS))
    print("\n".join(sizes))


def cells(values: dict[str, float], columns: tuple[str, ...]) -> str:
    """Percentages, a dash where a method does not apply."""
    return " | ".join(f"{100 * values[c]:.1f}" if c in values else "–" for c in columns)


if __name__ == "__main__":
    main()
