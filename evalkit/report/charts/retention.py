"""Quality against retention: the difference of every arm to the baseline, family by family."""

from __future__ import annotations

from markupsafe import Markup

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import by_benchmark
from evalkit.report.charts.lines import Axes, Lines, Point, panels
from evalkit.report.charts.scale import Scale
from evalkit.report.plots.curves import families, octave
from evalkit.report.verdict_text import measured
from evalkit.stats import MACRO, Comparison


def retention(comparison: RunComparison) -> Markup | None:
    """A panel for the average and one for every benchmark; None where no schedule is known."""
    groups = families(comparison)
    shares = sorted({share for points in groups.values() for share, _ in points}, reverse=True)
    if len(shares) < 2:
        return None
    last = octave(shares[-1])
    parts = by_benchmark(comparison)
    shown = {"all tasks": comparison.result} | (parts if len(parts) > 1 else {})
    places = {arm: octave(s) / last for points in groups.values() for s, arm in points}
    charts = {
        title: _lines(part, {f: [arm for _, arm in points] for f, points in groups.items()}, places)
        for title, part in shown.items()
    }
    margin = 100 * comparison.settings.margin
    points = [p for lines in charts.values() for line in lines.values() for p in line]
    low = min([-1.6 * margin, *(point.low for point in points)])
    high = max([1.6 * margin, *(point.high for point in points)])
    room = 0.04 * (high - low)
    axes = Axes(
        Scale(low - room, high + room),
        [(octave(share) / last, str(share)) for share in shares],
        margin,
        across="Across: retention (full layers ÷ layers with an indexer). Up: difference to"
        f" {comparison.result.baseline} in points; dashed: minus the margin.",
    )
    return panels(charts, axes)


def _lines(part: Comparison, arms: dict[str, list[str]], places: dict[str, float]) -> Lines:
    rows = {row.arm: row for row in part.rows if row.task == MACRO}
    lines = {}
    for family, names in arms.items():
        points = []
        for name in names:
            row = rows.get(name)
            if row is None:
                continue
            result = row.result
            ends = (result.delta, result.low, result.high) if result else (0.0, 0.0, 0.0)
            value, low, high = (100 * end for end in ends)
            text = f"{name}: {measured(row) or 'the baseline'}"
            points.append(Point(places[name], value, low, high, text))
        if points:
            lines[family] = points
    return lines
