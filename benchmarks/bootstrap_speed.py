# ruff: noqa: E402  (the number of threads is set before NumPy loads)
"""Speed of the paired bootstrap beside scipy.stats.bootstrap, in one run on one core.

    python benchmarks/bootstrap_speed.py

Prints the median seconds of several repeats, the ratios, and the distance between the two
intervals in standard errors of the difference. SciPy is timed twice: with its default memory use
and with `batch=100`, which is faster for it.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy
from scipy.stats import bootstrap

from evalkit.stats import Design, IntervalOptions, paired_bootstrap_arms

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def scores(arms: int, n: int) -> Floats:
    """[1 + arms, n] zero-inflated F1 scores; arms agree with the baseline on 80 % of samples."""
    rng = np.random.default_rng(0)
    base = np.where(rng.random(n) < 0.4, 0.0, rng.beta(2.0, 1.0, n))
    changed = rng.random((arms, n)) < 0.2
    return np.vstack([base, np.where(changed, rng.beta(1.5, 1.0, (arms, n)), base)])


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Median processor time of a call, on one thread."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times)


def scipy_bca(a: Floats, b: Floats, resamples: int, batch: int | None, seed: int = 0) -> Floats:
    """SciPy's paired BCa interval of mean(a) - mean(b)."""
    found = bootstrap(
        (a, b),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        paired=True,
        method="BCa",
        n_resamples=resamples,
        batch=batch,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return np.array([found.low, found.high])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", type=int, default=12)
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    matrix = scores(args.arms, args.n)
    size = {"n_resamples": args.resamples}

    print(f"{args.arms} arms x {args.n} samples, {args.resamples} resamples, one core")
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, {platform.processor() or 'CPU'}")
    ours = {}
    for method in ("percentile", "bca", "studentized"):
        ours[method] = seconds(
            lambda m=method: paired_bootstrap_arms(matrix, 0, None, IntervalOptions(m, **size)),
            args.repeats,
        )
        print(f"evalkit {method:12s} all arms  {ours[method]:7.3f} s")
    strata = np.arange(args.n) % 13
    bca, tasks = IntervalOptions("bca", **size), Design(strata)
    macro = seconds(lambda: paired_bootstrap_arms(matrix, 0, tasks, bca), args.repeats)
    print(f"evalkit bca, 13 tasks and macro   {macro:7.3f} s")

    ratios = {"seconds": ours["bca"]}
    for batch in (None, 100):
        one = seconds(
            lambda b=batch: scipy_bca(matrix[1], matrix[0], args.resamples, b), args.repeats
        )
        total = one * args.arms
        ratios["scipy" if batch else "scipy, default batch"] = total / ours["bca"]
        print(
            f"scipy BCa, batch={batch!s:5s} one arm   {one:7.3f} s, x {args.arms} arms "
            f"{total:6.2f} s: {total / ours['bca']:5.1f} times evalkit"
        )

    result = paired_bootstrap_arms(matrix, 0, None, bca)
    gaps = []
    for arm in range(1, args.arms + 1):
        found = scipy_bca(matrix[arm], matrix[0], args.resamples, 100, seed=arm)
        error = np.std(matrix[arm] - matrix[0]) / np.sqrt(args.n)
        mine = np.array([result.overall[arm].low, result.overall[arm].high])
        gaps.append((mine - found) / error)
    spread = float(np.sqrt(np.mean(np.square(gaps))))
    # a 2.5 % order statistic of B replicates has standard error sqrt(p (1 - p) / B) / phi(z_p);
    # bias and acceleration add to it, and both sides carry it
    single = np.sqrt(0.025 * 0.975 / args.resamples) / 0.0584
    print(
        f"interval ends, evalkit minus scipy: root mean square {spread:.4f} standard errors, "
        f"largest {np.max(np.abs(gaps)):.4f}; Monte-Carlo error of two percentile ends "
        f"{single * np.sqrt(2):.4f}"
    )
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
