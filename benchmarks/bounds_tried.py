"""Bounds and estimates that were tried and left (docs/log.md), against those in use.

    python benchmarks/bounds_tried.py

Prints distances of lower bounds below the estimate, margins that a macro average of 13 equal tasks
needs, and the bias of estimates of arms that stopped early; all in points of 100.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from evalkit.stats.confidence_sequence import first_refuted, log_capital, sequence_ends
from evalkit.stats.inputs import split
from evalkit.stats.one_sided import bounded_units
from evalkit.stats.trinomial import trinomial_lower

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
ALPHA = 0.025


def right_wrong(rng: np.random.Generator, n: int, gain: float, loss: float) -> Floats:
    return rng.choice([-1.0, 0.0, 1.0], n, p=[loss, 1.0 - gain - loss, gain])


def gaffke(d: Floats, tasks: Floats | None = None) -> float:
    """Gaffke's lower bound."""
    return bounded_units([part.units for part in split(d[None], tasks, None)], 0).lower(ALPHA)


def fixed_n(rng: np.random.Generator) -> None:
    print("| data | Gaffke | betting sequence |\n|---|---:|---:|")
    kinds = {
        "200, no difference": lambda: np.zeros(200),
        "200, 5 % gains, 5 % losses": lambda: right_wrong(rng, 200, 0.05, 0.05),
        "503, ±0.03 on 30 %": lambda: np.where(
            rng.random(503) < 0.3, rng.uniform(-0.03, 0.03, 503), 0.0
        ),
    }
    for name, draw in kinds.items():
        rows = []
        for _ in range(30):
            d = draw()
            rows.append((d.mean() - gaffke(d), d.mean() - sequence_ends(d)[0]))
        print(f"| {name} | {' | '.join(f'{100 * x:.2f}' for x in np.mean(rows, axis=0))} |")


def macro(rng: np.random.Generator) -> None:
    """Margins that 13 tasks of 100 with 2 % gains and losses need."""
    margins, tasks = np.linspace(0.002, 0.2, 200), np.repeat(np.arange(13), 100)
    rows = []
    for _ in range(40):
        d = [right_wrong(rng, 100, 0.02, 0.02) for _ in range(13)]
        nulls = (1.0 - margins) / 2.0
        # the loss shared out evenly; the least favorable way needs more
        capital = sum(log_capital((x + 1.0) / 2.0, nulls, None, 0.95)[:, -1] for x in d)
        product = margins[np.argmax(capital >= math.log(1.0 / ALPHA))]
        each = [trinomial_lower(int((x > 0).sum()), int((x < 0).sum()), 100, ALPHA / 13) for x in d]
        sequences = [sequence_ends(x, confidence=1.0 - 2.0 * ALPHA / 13)[0] for x in d]
        pooled = -gaffke(np.concatenate(d), tasks)
        rows.append((pooled, product, -np.mean(each), -np.mean(sequences)))
    names = ("pooled, Gaffke", "product of e-values", "Bonferroni, exact", "Bonferroni, sequences")
    print("\n| macro average of 13 | margin needed |\n|---|---:|")
    for name, value in zip(names, np.mean(rows, axis=0), strict=True):
        print(f"| {name} | {100 * value:.1f} |")


def stopped(rng: np.random.Generator, runs: int) -> None:
    """Bias of three estimates of an arm that stops at the look of 32 that decides a margin of 5."""
    grid = np.linspace(0.0, 1.0, 401)
    print("\n| gains, losses | mean so far | middle | equally refuted |\n|---|---:|---:|---:|")
    for gain, loss in ((0.05, 0.05), (0.05, 0.35)):
        rows = []
        for _ in range(runs):
            d, null = right_wrong(rng, 500, gain, loss), np.array([0.475])
            x = (d + 1.0) / 2.0
            at = min(
                first_refuted(x, null, None, 0.95)[0],
                first_refuted(1.0 - x, 1.0 - null, None, 0.95)[0],
            )
            n = 500 if math.isinf(at) else min(500, 32 * math.ceil((at + 1) / 32))
            up = log_capital(x[:n], grid, None, 0.95)[:, -1]
            down = log_capital(1.0 - x[:n], 1.0 - grid, None, 0.95)[:, -1]
            equal = 2.0 * grid[np.argmin(np.maximum(up, down))] - 1.0
            rows.append((d[:n].mean(), np.mean(sequence_ends(d[:n])), equal))
        bias = np.mean(rows, axis=0) - (gain - loss)
        print(f"| {gain:g}, {loss:g} | {' | '.join(f'{100 * x:+.1f}' for x in bias)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=250)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    fixed_n(rng)
    macro(rng)
    stopped(rng, args.runs)


if __name__ == "__main__":
    main()
