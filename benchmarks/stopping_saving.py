"""Answers that stopping when decided would have saved on finished runs.

    python benchmarks/stopping_saving.py RUN_DIR --margin 0.02 0.05

Replays a scored run: samples in the seeded order, a look after every 32 as `--until-decided` does,
each arm stopped on a task when its question is decided. Two LongBench runs are imported with
`evalkit import longbench FOLDER --arm NAME --out RUN_DIR`. Prints Markdown (docs/statistics.md).
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from evalkit.run.sequential_stopping import LOOK
from evalkit.run.store import RunStore
from evalkit.stats import QUESTIONS, looking_confidence, sampling_order, sequential_decision


def drawn(differences: list[float], clusters: list[str], margin: float, question: str) -> int:
    """Samples until the look at which the question is decided, or all of them."""
    looking = looking_confidence(0.95)
    _, at = sequential_decision(
        differences, margin, len(differences), question, clusters=clusters, confidence=looking
    )
    return len(differences) if at is None else min(len(differences), math.ceil(at / LOOK) * LOOK)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--margin", type=float, nargs="+", default=[0.02, 0.05])
    parser.add_argument("--baseline")
    parser.add_argument("--orders", type=int, default=20, help="seeds averaged over")
    args = parser.parse_args()
    store = RunStore(args.run)
    names = [arm.name for arm in store.read_run().arms]
    base = args.baseline or names[0]
    items = store.read_items()
    scores = {name: store.read_scores(name) for name in names}
    tasks: dict[str, list[str]] = {}
    for sample_id in scores[base]:
        tasks.setdefault(items[sample_id].task, []).append(sample_id)
    print(f"Command: python benchmarks/stopping_saving.py RUN_DIR {' '.join(sys.argv[2:])}\n")
    print("| arm | margin | question | answers needed | of | saved | tasks decided |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for name in names:
        if name == base or not scores[name]:
            continue
        for margin in args.margin:
            for question in QUESTIONS:
                spent, decided = 0, 0
                for ids in tasks.values():
                    clusters = [items[i].cluster for i in ids]
                    for seed in range(args.orders):
                        order = sampling_order(ids, clusters=clusters, seed=seed)
                        d = [scores[name][ids[k]].score - scores[base][ids[k]].score for k in order]
                        n = drawn(d, [clusters[k] for k in order], margin, question)
                        spent += n
                        decided += n < len(d)
                total = sum(map(len, tasks.values()))
                mean = spent / args.orders
                print(
                    f"| {name} | {margin:g} | {question} | {mean:,.0f} | {total:,} "
                    f"| {100 * (1 - mean / total):.0f} % "
                    f"| {decided / args.orders:.1f} of {len(tasks)} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
