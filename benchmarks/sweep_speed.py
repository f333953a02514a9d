"""Processor time of the demo's sweep, here and in an older checkout, in turns.

    git worktree add DIR 14b2bb4
    python benchmarks/sweep_speed.py DIR [--limit 10] [--rounds 3]

Every round runs `evalkit run recipes/eval/demo.toml --limit N` of both checkouts, one after the
other, each on one thread: eleven arms, N samples of three tasks each. Start, scores and tables
count. The ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]


def sweep(checkout: Path, limit: int) -> float:
    """CPU seconds of one run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "evalkit.cli", "run", "recipes/eval/demo.toml"]
        command += ["--out", f"{folder}/run", "--limit", str(limit)]
        one = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout)}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command, cwd=checkout, env={**os.environ, **one}, check=True, capture_output=True
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="checkout of an older version")
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    taken: dict[str, list[float]] = {"before": [], "here": []}
    for _ in range(args.rounds):
        taken["before"].append(sweep(args.before.resolve(), args.limit))
        taken["here"].append(sweep(HERE, args.limit))
    before, here = (statistics.median(times) for times in taken.values())
    print(f"demo, --limit {args.limit}, CPU s: before {before:.1f}, here {here:.1f}")
    print(json.dumps({"sweep": before / here}))


if __name__ == "__main__":
    main()
