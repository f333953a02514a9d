"""The table of a power analysis: one row per benchmark, then the macro average."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from evalkit.stats.closed_form_intervals import critical_z
from evalkit.stats.comparison import MACRO
from evalkit.stats.power import Spread, check_power
from evalkit.stats.verdict_power import (
    Plan,
    growth_needed,
    haystacks_for,
    least_effect,
    least_margin,
    undecidable_below,
    verdict_power,
)

SMALL_PILOT = 30


@dataclass(frozen=True, slots=True)
class PowerRow:
    """What a planned number of samples can and cannot show on one benchmark.

    Attributes:
        task: benchmark, or ``"macro"``.
        planned: samples planned.
        needed: samples that decide the margin with the power if the arms are equal (macro: of all
            benchmarks together, in the planned proportions); None for a margin of 0, which none
            can.
        power: chance that the planned n decides the margin if the arms are equal.
        effect: smallest true loss that the planned n shows to be a loss with the power.
        margin: smallest margin that the planned n decides with the power if the arms are equal.
        step: smallest change of a right/wrong score, 1 / n.
        noise: half width of the interval of the difference, the sampling noise.
        caution: what weakens the row, or None.
    """

    task: str
    planned: int
    needed: int | None
    power: float
    effect: float
    margin: float
    step: float
    noise: float
    caution: str | None = None

    def sentence(self) -> str:
        """Step and noise in words, in points of 100."""
        if self.noise == 0.0:
            return (
                f"{self.planned} samples move in steps of {100 * self.step:.2g} points; no sample"
                " of the pilot differs, so that the noise is not known"
            )
        ratio = self.noise / self.step
        return (
            f"{self.planned} samples move in steps of {100 * self.step:.2g} points; "
            f"the sampling noise of a difference is +-{100 * self.noise:.2g} points, "
            f"{ratio:.0f} steps"
        )


def power_table(
    spreads: Mapping[str, Spread],
    planned: Mapping[str, int],
    margin: float,
    *,
    power: float = 0.8,
    confidence: float = 0.95,
) -> list[PowerRow]:
    """One `PowerRow` per benchmark, in the order given, and one for the macro average.

    The rows are about the verdicts that rest on bounds (`evalkit.stats.verdict_power`).

    Raises:
        EvalkitError: no benchmark, no planned n for one, n < 1, or margin or power out of range.
    """
    check_power(power)
    plan = Plan(spreads, planned)
    rows = []
    for task, spread in plan.spreads.items():
        alone = Plan({task: spread}, {task: plan.samples[task]})
        notes = [_pilot_caution(spread), _haystack_caution(alone, task, margin, confidence)]
        caution = "; ".join(note for note in notes if note) or None
        rows.append(_row(task, alone, margin, power, confidence, caution))
    return [*rows, _row(MACRO, plan, margin, power, confidence, None)]


def _pilot_caution(spread: Spread) -> str | None:
    if 0 < spread.pilot < SMALL_PILOT:
        return f"pilot of {spread.pilot} samples: its spread is uncertain by a factor of two"
    if spread.pilot and spread.gain + spread.loss == 0.0:
        return "no sample of the pilot differs: the least n that could decide is shown"
    return None


def _haystack_caution(plan: Plan, task: str, margin: float, confidence: float) -> str | None:
    if not plan.clustered:
        return None
    count = math.floor(plan.haystacks(task) + 1e-9)
    least = undecidable_below(count, confidence)
    note = f"{count} haystacks decide no margin below {100 * least:.2g} points"
    if 0.0 < margin < least:
        needed = haystacks_for(margin, confidence)
        note += f", however many samples they hold: {100 * margin:.2g} needs {needed:,} of them"
    return note


def _row(
    task: str, plan: Plan, margin: float, power: float, confidence: float, caution: str | None
) -> PowerRow:
    n = sum(plan.samples[name] for name in plan.spreads)
    needed = None
    if margin > 0.0:
        factor = growth_needed(plan, margin, power=power, confidence=confidence)
        grown = plan.grown(factor) if math.isfinite(factor) else None
        needed = None if grown is None else sum(grown.samples[name] for name in plan.spreads)
    return PowerRow(
        task=task,
        planned=n,
        needed=needed,
        power=verdict_power(plan, margin, confidence=confidence),
        effect=least_effect(plan, power=power, confidence=confidence),
        margin=least_margin(plan, power=power, confidence=confidence),
        step=1.0 / max(plan.samples[name] for name in plan.spreads) / len(plan.spreads),
        noise=critical_z(confidence) * plan.standard_error,
        caution=caution,
    )
