"""The table of a comparison: its rows and the choices behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.stats.decision import Decision
from evalkit.stats.result import PairedResult
from evalkit.stats.sequential_test import Drawing
from evalkit.stats.verdict import Reason

MACRO = "macro"
SAME = 5e-5  # differences of score that no table shows


BASELINE, REPEAT = "baseline", "repeat"
"""Beside the five words of a verdict: the arm that others are compared with, and its second run."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arm on one task, or on the macro average (task ``"macro"``).

    Attributes:
        arm: name of the arm.
        task: task label or ``"macro"``.
        score: mean score over the samples joined with the baseline (macro: mean of task means).
        baseline_score: the baseline on the same samples.
        n: samples joined.
        errors: failed generations of the arm among them, counted as score 0.
        result: difference to the baseline; None for the baseline itself and for a task that
            one of the two does not have. Of an arm that was stopped early, what its confidence
            sequence says.
        verdict: one of the five words (`evalkit.stats.verdict.Verdict`), ``"baseline"`` or
            ``"repeat"``.
        bound: lower and upper bound that the verdict rests on; None where there is no decision.
        equivalent: whether the bounds exclude a difference as large as the margin in both
            directions (TOST).
        notes: what a reader must know beside the numbers.
        decision: what the verdict rests on; None for the baseline and its repeat.
    """

    arm: str
    task: str
    score: float | None
    baseline_score: float | None
    n: int
    errors: int
    result: PairedResult | None = None
    verdict: str = BASELINE
    bound: tuple[float, float] | None = None
    equivalent: bool = False
    notes: tuple[str, ...] = ()
    decision: Decision | None = field(default=None, compare=False)

    @property
    def bound_is_interval(self) -> bool:
        """Whether the interval of the table is the bound that the verdict rests on."""
        if self.bound is None or self.result is None:
            return True
        ends = (self.result.low, self.result.high)
        return all(abs(a - b) < SAME for a, b in zip(self.bound, ends, strict=True))


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows: the baseline's first, then arm by arm, tasks sorted and the macro average last.

    Attributes:
        rows: one per arm and task.
        baseline: name of the baseline arm.
        signature: every choice the numbers depend on, in one line.
    """

    rows: tuple[Row, ...]
    baseline: str
    signature: str

    def row(self, arm: str, task: str = MACRO) -> Row:
        """The row of one arm and task.

        Raises:
            EvalkitError: there is none.
        """
        for row in self.rows:
            if (row.arm, row.task) == (arm, task):
                return row
        raise EvalkitError(f"no row for arm {arm!r} and task {task!r}")


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of a comparison.

    Attributes:
        margin: largest tolerable loss in score units, for every task without its own.
        margins: margins of single tasks (or of ``"macro"``).
        method: of the interval of the table, a name of `methods.METHODS`; ``"auto"`` takes the
            bound of the verdict where that is no wider than it must be, else the score interval.
        confidence: nominal coverage of the two-sided interval.
        n_resamples: bootstrap resamples.
        seed: seed of the resamples.
        family: whether every arm's verdict stands alone (``"each"``), or all arms' on a task hold
            together (``"all"``, Holm). The baseline's repeat is in no family.
        rare_losses_excluded: the reason for which losses that no sample shows are excluded, so
            that verdicts on graded scores read the interval; empty: they are not.
        repeat: arm that is a second run of the baseline.
        floors: score that no knowledge gets (chance, best constant answer) by sample id; 0 for
            others.
        withheld: arm -> why it gets no verdict, whatever the scores say; of the baseline, why none
            does.
        drawing: how samples were drawn in a run that stops early; None: all were asked.
    """

    margin: float = 0.01
    margins: Mapping[str, float] = field(default_factory=dict)
    method: str = "auto"
    confidence: float = 0.95
    n_resamples: int = 10000
    seed: int = 0
    family: Literal["each", "all"] = "each"
    rare_losses_excluded: str = ""
    repeat: str | None = None
    floors: Mapping[str, float] = field(default_factory=dict)
    withheld: Mapping[str, Reason] = field(default_factory=dict)
    drawing: Drawing | None = None

    @property
    def alpha(self) -> float:
        """Level of each one-sided claim."""
        return (1.0 - self.confidence) / 2.0

    def margin_of(self, task: str) -> float:
        """The margin of a task, or of the macro average."""
        return self.margins.get(task, self.margin)

    def signature(self) -> str:
        """The choices in one line."""
        return "|".join(
            [
                "paired",
                f"method:{self.method}",
                f"confidence:{self.confidence:g}",
                f"resamples:{self.n_resamples}",
                f"seed:{self.seed}",
                f"margin:{self.margin:g}",
                *(f"margin[{task}]:{self.margins[task]:g}" for task in sorted(self.margins)),
                *self._verdict_choices(),
                f"numpy:{np.__version__}",
            ]
        )

    def _verdict_choices(self) -> list[str]:
        rare = ["rare losses:excluded"] if self.rare_losses_excluded else []
        repeat = [f"repeat:{self.repeat}"] if self.repeat is not None else []
        drawn = [f"until decided:{self.drawing.question}"] if self.drawing is not None else []
        return [f"family:{self.family}", *rare, *repeat, *drawn]
