"""The first screen: all arms on one axis, with their verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from markupsafe import Markup

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import entry, in_force, place
from evalkit.report import own_samples, verdict_text
from evalkit.report.charts.scale import of_differences
from evalkit.report.charts.strip import axis, ends, span_of, strip
from evalkit.report.charts.template import render
from evalkit.report.tables import difference, interval
from evalkit.stats import MACRO, Row, Verdict
from evalkit.stats.comparison import BASELINE, REPEAT
from evalkit.stats.verdict import points

ORDER = (
    *(BASELINE, REPEAT, Verdict.BETTER, Verdict.NO_WORSE),
    *(Verdict.UNDECIDED, Verdict.WITHHELD, Verdict.WORSE),
)
"""Verdicts as the first screen lists them: what may be shipped comes first."""


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One arm.

    Attributes:
        arm: its name.
        verdict: the word.
        badge: class of its colour.
        layers: full layers among all, and the lag, where the schedule is known.
        score: with its own n where that is not the baseline's.
        difference: to the baseline.
        interval: of it.
        sentence: what the verdict says.
        notes: what must be known beside it.
        strip: the interval on the axis.
        rank: place of the verdict in `ORDER`.
        delta: to sort by.
        retention: to sort by.
    """

    arm: str
    verdict: str
    badge: str
    layers: str
    score: str
    difference: str
    interval: str
    sentence: str
    notes: tuple[str, ...]
    strip: Markup
    rank: int
    delta: float
    retention: float


def forest(comparison: RunComparison) -> Markup | None:
    """Every arm with its verdict, interval and a sentence; None where nothing was scored."""
    rows = [row for row in comparison.result.rows if row.task == MACRO]
    if not rows:
        return None
    spans = {row.arm: span_of(row) for row in rows}
    margin = 100 * comparison.options.margin_of(MACRO)
    reached = [value for span in spans.values() if span for value in ends(span)]
    scale = of_differences(reached, margin)
    base = next((row for row in rows if row.arm == comparison.result.baseline), None)
    shown = []
    for row in rows:
        arm = entry(comparison, row.arm)
        shown.append(
            ForestRow(
                arm=row.arm,
                verdict=str(row.verdict),
                badge=verdict_text.LOOKS[row.verdict].badge,
                layers=_layers(comparison, row.arm),
                score=own_samples.score(row, base),
                difference=difference(row),
                interval=interval(row),
                sentence=_sentence(row, comparison),
                notes=row.notes,
                strip=strip(spans[row.arm], scale, margin=margin),
                rank=ORDER.index(row.verdict),
                delta=0.0 if row.result is None else row.result.delta,
                retention=float(place(arm).retention or Fraction(2)),
            )
        )
    return render(
        "forest.html.j2",
        rows=sorted(shown, key=lambda row: (row.rank, row.retention)),
        order=[row.arm for row in shown],
        axis=axis(scale),
        margin=points(comparison.options.margin_of(MACRO)),
        baseline=comparison.result.baseline,
        percent=f"{100 * comparison.settings.confidence:g} %",
        bounds=any(span is not None and span.bound is not None for span in spans.values()),
        beyond=any(not scale.low <= value <= scale.high for value in reached),
    )


def _layers(comparison: RunComparison, name: str) -> str:
    """As the schedule says, or as it was asked for where nothing proves it."""
    arm = entry(comparison, name)
    if arm.schedule is None:
        return ""
    full = f"{len(arm.schedule.full_layer_ids)}/{len(arm.schedule.layer_ids)} full"
    lag = arm.schedule.lag
    text = f"{full}, lag {lag if isinstance(lag, int) else 'by layer'}" if lag else full
    verdict = in_force(arm)
    proved = not verdict or verdict.startswith(("engaged", "not applicable"))
    return text if proved else f"{text}: asked, not proved"


def _sentence(row: Row, comparison: RunComparison) -> str:
    if row.arm == comparison.result.baseline:
        return f"the arm that the others are compared with; it scores {100 * (row.score or 0):.1f}"
    return verdict_text.sentence(row, comparison)
