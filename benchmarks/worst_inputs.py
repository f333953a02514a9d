"""CPU seconds of the commands' parts on their worst inputs, each beside a limit.

    python benchmarks/worst_inputs.py

Scorers on answers of 8,000 to 350,000 characters that make patterns backtrack, ROUGE on texts of
20,000 words, RULER tasks refusing a length that is too short, and writing an HTML report of twelve
arms with 5,000 samples each. Fails (exit 1) where one takes longer than its limit.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the tests make the report's run


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def scorers() -> float:
    """The slowest of every benchmark metric on every long answer."""
    from evalkit.scorers import score
    from tests.scorers.test_fuzz import BENCHMARKS, GOLD, LONG

    meta = {"all_classes": ["Tide", "Tide pool"]}
    return max(
        seconds(partial(score, metric, text, (gold,), mode=mode, meta=meta))
        for metric in BENCHMARKS
        for mode in ("official", "strict")
        for text in LONG.values()
        for gold in (GOLD.get(metric, "total_1 = 1; 山很高"),)
    )


def rouge() -> float:
    """The slowest of 20,000 words in 1 to 20,000 sentences."""
    from evalkit.scorers import score

    source, slowest = random.Random(0), 0.0
    for sentences in (1, 20, 2000, 20000):
        size = 20000 // sentences
        both = []
        for _ in range(2):
            words = [f"w{source.randrange(3000)}" for _ in range(20000)]
            both.append(". ".join(" ".join(words[i : i + size]) for i in range(0, 20000, size)))
        slowest = max(slowest, seconds(partial(score, "rouge", both[0], (both[1],))))
    return slowest


def refusals() -> float:
    """The slowest refusal of a RULER task at 190 tokens."""
    from evalkit.core.errors import EvalkitError
    from tests.tasks.fakes import TASKS, FakeRenderer, ruler

    def refused(name: str) -> None:
        try:
            ruler(name, 190).sample(0, FakeRenderer())
        except EvalkitError:
            return
        raise AssertionError(f"{name}@190 was not refused")

    return max(seconds(partial(refused, name)) for name in TASKS)


def page() -> float:
    """Writing the report of a large run, its comparison apart."""
    from evalkit.analysis.compare import compare_run
    from evalkit.report import html
    from tests.report.runs import make

    arms = tuple((f"arm {k}", "1", 0, False, 0.97 - 0.05 * k) for k in range(12))
    with tempfile.TemporaryDirectory() as folder:
        store = make(Path(folder) / "run", n=1000, arms=arms)
        comparison = compare_run(store)
        return seconds(lambda: html.write(store, comparison, Path(folder) / "report.html"))


LIMITS = {
    "slowest score of a long answer": (scorers, 10.0),
    "ROUGE of 20,000 words": (rouge, 10.0),
    "slowest refusal of a length": (refusals, 3.0),
    "HTML report, 12 arms x 5,000 samples": (page, 30.0),
}


def main() -> int:
    failed, shares = 0, {}
    print(f"{'':38} {'CPU s':>7} {'limit':>6}")
    for name, (work, limit) in LIMITS.items():
        taken = work()
        failed += taken > limit
        shares[name] = taken / limit
        print(f"{name:38} {taken:7.2f} {limit:6.0f}{'  too slow' if taken > limit else ''}")
    print(json.dumps({"limit": max(shares.values()), **shares}))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
