"""The table of a comparison: its rows and the choices behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from evalkit.core.errors import EvalkitError
from evalkit.stats.decision import Decision
from evalkit.stats.result import PairedResult

MACRO = "macro"


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
            one of the two does not have.
        p_adjusted: p-value adjusted over the family that `Options.over` names.
        verdict: ``"no worse"``, ``"worse"`` or ``"undecided"``; ``""`` for the baseline.
        equivalent: whether the interval excludes a difference as large as the margin in both
            directions (TOST).
        notes: what a reader must know beside the numbers, the result's caution included.
        decision: what the verdict rests on; None where it reads the interval
            (`Options.verdicts`), and for the baseline.
    """

    arm: str
    task: str
    score: float | None
    baseline_score: float | None
    n: int
    errors: int
    result: PairedResult | None = None
    p_adjusted: float | None = None
    verdict: str = ""
    equivalent: bool = False
    notes: tuple[str, ...] = ()
    decision: Decision | None = None


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
        noise_floors: noise floor per task (or ``"macro"``), from an A/A pair.
        method: ``"auto"`` (what the coverage table supports) or one of `methods.METHODS`.
        confidence: nominal coverage of the two-sided interval.
        n_resamples: bootstrap resamples.
        seed: seed of the resamples.
        adjust: ``"holm"`` or ``"benjamini-hochberg"``.
        over: p-values adjusted together: ``"arms"`` (within a task) or ``"arms and tasks"``
            (of all tasks; the macro average stays a family of its own).
        verdicts: what verdicts read: ``"interval"`` (the rule up to version 0.1) or ``"bounds"``
            (the bounds that hold in every situation, `evalkit.stats.decision`). The attributes
            below belong to the second.
        family: whether every arm's verdict stands alone (``"each"``), or all arms' on a task hold
            together (``"all"``, Holm). The baseline's repeat is in no family.
        rare_losses_excluded: the reason for which losses that no sample shows are excluded, so
            that verdicts on graded scores read the interval; empty: they are not.
        repeat: arm that is a second run of the baseline.
        floors: score that no knowledge gets (chance, best constant answer) by sample id; 0 for
            others.
        not_engaged: arm -> why its setting is not shown to have done anything.
    """

    margin: float = 0.01
    margins: Mapping[str, float] = field(default_factory=dict)
    noise_floors: Mapping[str, float] = field(default_factory=dict)
    method: str = "auto"
    confidence: float = 0.95
    n_resamples: int = 10000
    seed: int = 0
    adjust: str = "holm"
    over: str = "arms"
    verdicts: Literal["interval", "bounds"] = "interval"
    family: Literal["each", "all"] = "each"
    rare_losses_excluded: str = ""
    repeat: str | None = None
    floors: Mapping[str, float] = field(default_factory=dict)
    not_engaged: Mapping[str, str] = field(default_factory=dict)

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
                f"adjust:{self.adjust} over {self.over}",
                f"margin:{self.margin:g}",
                *(f"margin[{task}]:{self.margins[task]:g}" for task in sorted(self.margins)),
                *self._verdict_choices(),
                f"numpy:{np.__version__}",
            ]
        )

    def _verdict_choices(self) -> list[str]:
        if self.verdicts == "interval":
            return []
        rare = ["rare losses:excluded"] if self.rare_losses_excluded else []
        repeat = [f"repeat:{self.repeat}"] if self.repeat is not None else []
        return [f"verdicts:{self.verdicts}", f"family:{self.family}", *rare, *repeat]
