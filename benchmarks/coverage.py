# ruff: noqa: E402  (the number of threads is set before NumPy loads)
"""False verdicts, coverage, width and power of a comparison, by simulation.

    python benchmarks/coverage.py --seed 0

For every situation, data sets are drawn whose true difference is exactly minus the margin, where
both "no worse" and "worse" are false, and others without a difference. Each passes through
`evalkit.stats.compare`, as a run does. Columns:

- no worse, worse: share of data sets with that verdict at the margin (promised: 2.5 % at most);
- coverage and width of the interval in the table, and its width against the score interval;
- power: share of "no worse" without a difference, at the margin at which the textbook's test
  (score test; t test for haystacks and graded scores) has 80 %;
- textbook: its false no worse, its false worse.

A row ends before `--datasets` where both false verdicts are already shown to be below 3 % (exact
bound, 99.9 % a look, after `--first` data sets and after half of all); column n says how many it
took.
Right/wrong data sets with the same counts are compared once. Prints a Markdown table.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from situations import Floats, Layout, Situation, situations

from evalkit.stats import (
    MACRO,
    ArmScores,
    Options,
    Row,
    arm_decisions,
    compare,
    paired_difference,
)
from evalkit.stats.trinomial import clopper_pearson

arm_decisions.what_decides = lambda *_: ()  # what would decide changes no verdict and costs time

BATCH = 500
GOAL = 0.03
COLUMNS = (
    *("situation", "n", "margin", "no worse", "worse", "coverage", "width", "× score"),
    *("power", "textbook: no worse", "worse"),
)


@dataclass(frozen=True)
class Outcome:
    """What one data set gave: the row of the product, the interval of a textbook."""

    row: Row
    textbook: tuple[float, float] | None
    score: tuple[float, float] | None


class Judge:
    """Compares data sets of one situation, the same counts once."""

    def __init__(self, situation: Situation, margin: float) -> None:
        self.situation = situation
        self.margin = margin
        layout = situation.layout
        self.ids = [f"s{k:05d}" for k in range(layout.n)]
        self.tasks = [f"t{task:02d}" for task in layout.tasks.tolist()]
        self.labels = [] if layout.clusters is None else [f"h{c}" for c in layout.clusters.tolist()]
        self.seen: dict[bytes, Outcome] = {}

    def outcome(
        self,
        d: Floats,
        failed: tuple[Floats, Floats] | None = None,
        again: Floats | None = None,
        *,
        beside: bool = True,
    ) -> Outcome:
        """The comparison of one data set of differences, with the older intervals beside it."""
        if not self.situation.binary or failed is not None or again is not None:
            return self._compared(d, failed, beside, again)
        key = counts(d, self.situation.layout) + bytes([beside])
        if key not in self.seen:
            self.seen[key] = self._compared(d, failed, beside)
        return self.seen[key]

    def _compared(
        self,
        d: Floats,
        failed: tuple[Floats, Floats] | None,
        beside: bool,
        again: Floats | None = None,
    ) -> Outcome:
        arm, base = np.minimum(1.0, 1.0 + d), np.minimum(1.0, 1.0 - d)
        errors: tuple[list[bool], list[bool]] = ([], [])
        if failed is not None:
            errors = (failed[0].astype(bool).tolist(), failed[1].astype(bool).tolist())
            arm, base = arm * (1 - failed[0]), base * (1 - failed[1])
        arms = {
            name: ArmScores(self.ids, self.tasks, scores.tolist(), self.labels, bad)
            for name, scores, bad in (("base", base, errors[1]), ("arm", arm, errors[0]))
        }
        options = Options(margin=self.margin, repeat="again")
        if again is not None:  # both differences start from the first run
            base = np.where(d < 0, 1.0, np.where(d > 0, 0.0, again <= 0)).astype(float)
            arm = base + d
            scores = {"base": base, "arm": arm, "again": base + again}
            arms = {n: ArmScores(self.ids, self.tasks, s.tolist()) for n, s in scores.items()}
        row = compare(arms, "base", options).row("arm", MACRO)
        if not beside:
            return Outcome(row, None, None)
        layout, method = self.situation.layout, self.situation.textbook
        score = interval(arm, base, layout, "score")
        textbook = score if method == "score" else interval(arm, base, layout, method)
        return Outcome(row, textbook, score)


def interval(arm: Floats, base: Floats, layout: Layout, method: str) -> tuple[float, float]:
    """Interval by one of the older methods."""
    found = paired_difference(
        arm, base, strata=layout.tasks, clusters=layout.clusters, method=method
    )
    return found.low, found.high


def counts(d: Floats, layout: Layout) -> bytes:
    """What of a right/wrong data set matters: per task the sorted sums of its haystacks."""
    if layout.clusters is None:
        tasks = int(layout.tasks.max()) + 1
        gains = np.bincount(layout.tasks, d > 0, tasks)
        return np.concatenate([gains, np.bincount(layout.tasks, d < 0, tasks)]).tobytes()
    units, which, sizes = np.unique(layout.clusters, return_inverse=True, return_counts=True)
    task = np.zeros(len(units))
    task[which] = layout.tasks
    sums = np.bincount(which, d)
    order = np.lexsort((sums, sizes, task))
    # gains and losses inside a haystack matter to the score interval only
    inner = np.bincount(layout.tasks, np.abs(d))
    return np.concatenate([sums[order], inner]).tobytes()


def fail(
    rng: np.random.Generator, d: Floats, failures: tuple[float, float, bool]
) -> tuple[Floats, Floats] | None:
    """Which answers of the arm and of the baseline fail."""
    arm, base, hiding = failures
    if not arm and not base:
        return None
    if hiding:  # the baseline fails just where the arm loses
        return np.zeros_like(d), (d < 0).astype(float)
    return (rng.random(d.shape) < arm).astype(float), (rng.random(d.shape) < base).astype(float)


def evaluate(situation: Situation, args: argparse.Namespace) -> list[str]:
    """One row of the table."""
    label = int.from_bytes(situation.name.encode(), "little") % 2**64
    rng = np.random.default_rng([args.seed, label, round(1e6 * situation.margin)])
    judge, truth = Judge(situation, situation.margin), -situation.margin
    rows, older = [], []
    for done in range(0, args.datasets, BATCH):
        for d in situation.at_margin(rng, min(BATCH, args.datasets)):
            failed = fail(rng, d, situation.failures)
            again = None if situation.repeat is None else situation.repeat(rng, d)
            found = judge.outcome(d, failed, again, beside=done < args.textbook)
            result, verdict = found.row.result, found.row.verdict
            assert result is not None
            width = result.high - result.low
            covers = result.low <= truth + 1e-9 and truth - 1e-9 <= result.high
            rows.append((verdict in ("no worse", "better"), verdict == "worse", covers, width))
            if found.textbook is not None and found.score is not None:
                low, high = found.textbook
                ratio = width / (found.score[1] - found.score[0])
                older.append((ratio, low > truth, high < truth))
        if len(rows) in (args.first, args.datasets // 2):
            false = np.array(rows)[:, :2].astype(bool)
            if all(shown_below(GOAL, column) for column in false.T):
                break
    no_worse, worse, covered, width = np.mean(rows, axis=0)
    ratio, text_no_worse, text_worse = np.mean(older, axis=0)
    power = power_of(situation, rng, args.power) if situation.equal is not None else "–"
    return [
        situation.name,
        f"{len(rows):,}",
        f"{situation.margin:.3g}",
        *(f"{100 * value:.2f}" for value in (no_worse, worse)),
        f"{100 * covered:.1f}",
        f"{100 * width:.2f}",
        f"{ratio:.2f}",
        power,
        *(f"{100 * value:.1f}" for value in (text_no_worse, text_worse)),
    ]


def shown_below(rate: float, false: NDArray[np.bool_]) -> bool:
    """Whether the share of false verdicts is below `rate`, with 99.9 % confidence."""
    return clopper_pearson(int(false.sum()), len(false), 0.002)[1] < rate


def power_of(situation: Situation, rng: np.random.Generator, sets: int) -> str:
    """Share of "no worse" without a difference, where the textbook's test has 80 %."""
    assert situation.equal is not None
    layout, drawn = situation.layout, situation.equal(rng, sets)
    lows = [
        interval(np.minimum(1.0, 1.0 + d), np.minimum(1.0, 1.0 - d), layout, situation.textbook)[0]
        for d in drawn
    ]
    margin = float(np.quantile(-np.array(lows), 0.8)) + 1e-6
    if margin >= 0.9:
        return "–"
    judge = Judge(situation, margin)
    decided = [judge.outcome(d, beside=False).row.verdict in ("no worse", "better") for d in drawn]
    return f"{100 * np.mean(decided):.0f} at {margin:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--datasets", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=2000, help="then rows far from 3 %% end")
    parser.add_argument("--power", type=int, default=500, help="data sets without a difference")
    parser.add_argument("--textbook", type=int, default=1000, help="data sets that it sees")
    parser.add_argument("--only", default="", help="situations whose name holds this")
    parser.add_argument("--part", default="1/1", help="rows k, k + n, …: 1/2 and 2/2 side by side")
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    print(f"Command: python benchmarks/coverage.py {' '.join(sys.argv[1:])}\n")
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" + "|---:" * (len(COLUMNS) - 1) + "|")
    chosen = [s for s in situations() if args.only in s.name]
    for situation in chosen[part - 1 :: parts]:
        print(f"| {' | '.join(evaluate(situation, args))} |", flush=True)


if __name__ == "__main__":
    main()
