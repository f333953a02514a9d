"""RULER's mean score at every length."""

from __future__ import annotations

import math

from markupsafe import Markup

from evalkit.analysis.compare import RunComparison
from evalkit.report.charts.lines import Axes, Point, panels
from evalkit.report.charts.scale import Scale
from evalkit.report.plots.curves import ruler_curves, thousands


def ruler(comparison: RunComparison) -> Markup | None:
    """One line per arm; None without two lengths."""
    curves = ruler_curves(comparison)
    lengths = sorted({length for curve in curves.values() for length in curve})
    if len(lengths) < 2:
        return None
    first, last = math.log2(lengths[0]), math.log2(lengths[-1])
    places = {length: (math.log2(length) - first) / (last - first) for length in lengths}
    lines = {
        arm: [
            Point(places[n], 100 * s, 100 * s, 100 * s, f"{arm} at {thousands(n)}: {100 * s:.1f}")
            for n, s in curve.items()
        ]
        for arm, curve in curves.items()
    }
    axes = Axes(
        Scale(-2.0, 102.0),
        [(places[length], thousands(length)) for length in lengths],
        signed=False,
        across="Across: length in tokens. Up: mean score of RULER's tasks in points.",
    )
    return panels({"RULER": lines}, axes)
