"""Speed and quality of every arm side by side."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from evalkit.analysis.compare import RunComparison
from evalkit.report.charts.scale import Scale, of_differences
from evalkit.report.charts.strip import Span, axis, ends, span_of, strip
from evalkit.report.charts.template import render
from evalkit.report.tables import difference
from evalkit.report.verdict_text import LOOKS
from evalkit.stats import MACRO, Row


def speeds(
    measured: Sequence[tuple[str, tuple[float, float, float], Row]], comparison: RunComparison
) -> Markup:
    """A row for every arm that has both.

    Args:
        measured: arm, its speed ratio with interval (value, low, high), its average's row.
        comparison: of the run.
    """
    margin = 100 * comparison.options.margin_of(MACRO)
    faster = {arm: Span(*ratio, look="base") for arm, ratio, _ in measured}
    quality = {arm: span_of(row) for arm, _, row in measured}
    ratios = [value for span in faster.values() for value in (*ends(span), 1.0)]
    room = max(0.02, 0.08 * (max(ratios) - min(ratios)))
    across = Scale(min(ratios) - room, max(ratios) + room)
    scale = of_differences((v for s in quality.values() if s for v in ends(s)), margin)
    rows = [
        (
            arm,
            str(row.verdict),
            LOOKS[row.verdict].badge,
            f"{ratio[0]:.2f}×",
            strip(faster[arm], across, zero=1.0),
            difference(row),
            strip(quality[arm], scale, margin=margin),
        )
        for arm, ratio, row in measured
    ]
    return render(
        "speed.html.j2",
        rows=rows,
        across=axis(across, most=5, signed=False),
        axis=axis(scale, most=5),
    )
