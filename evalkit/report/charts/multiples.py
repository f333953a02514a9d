"""Tasks as small multiples: one panel each, all on one axis."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from evalkit.analysis.compare import RunComparison
from evalkit.core.grid import in_points, joined, number
from evalkit.report import own_samples, verdict_text
from evalkit.report.charts.scale import of_differences
from evalkit.report.charts.strip import axis, ends, span_of, strip
from evalkit.report.charts.template import render
from evalkit.report.tables import difference
from evalkit.stats import Row


@dataclass(frozen=True, slots=True)
class Line:
    """One arm in a panel.

    Attributes:
        arm: its name.
        badge: class of its verdict's colour.
        difference: to the baseline, with its own n where that is another one.
        sentence: what the verdict says.
        strip: the interval on the axis.
    """

    arm: str
    badge: str
    difference: str
    sentence: str
    strip: Markup


def multiples(comparison: RunComparison) -> Markup | None:
    """Every task with the interval of every arm; None of one arm, or one task."""
    result = comparison.result
    tasks = [task.name for task in comparison.tasks]
    by_task = {t: [r for r in result.rows if r.task == t and r.result] for t in tasks}
    spans = [span_of(row) for rows in by_task.values() for row in rows]
    if len(tasks) < 2 or not spans:
        return None
    margins = {task: 100 * comparison.options.margin_of(task) for task in tasks}
    scale = of_differences((v for s in spans if s for v in ends(s)), max(margins.values()))
    base = {row.task: row for row in result.rows if row.arm == result.baseline}
    panels = []
    for task, rows in by_task.items():
        lines = [
            Line(
                row.arm,
                verdict_text.LOOKS[row.verdict].badge,
                _difference(row, base.get(task)),
                f"{row.arm}: {verdict_text.sentence(row, comparison)}",
                strip(span_of(row), scale, margin=margins[task]),
            )
            for row in rows
        ]
        if lines:
            panels.append((task, _facts(base.get(task)), lines))
    return render("multiples.html.j2", panels=panels, axis=axis(scale, most=5))


def _facts(base: Row | None) -> str:
    """Samples and the baseline's score."""
    return "" if base is None else f"n = {base.n:,}, baseline {in_points(number(base.score))}"


def _difference(row: Row, base: Row | None) -> str:
    shown = difference(row)
    return joined((shown, f"(n={row.n})")) if own_samples.has_own(row, base) else shown
