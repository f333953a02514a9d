"""The schedule of every arm, layer by layer."""

from __future__ import annotations

from markupsafe import Markup

from evalkit.analysis.compare import RunComparison
from evalkit.report.charts.template import render


def schedules(comparison: RunComparison) -> Markup | None:
    """A row for every arm, a cell for every layer; None where no schedule is known."""
    known = {arm.name: arm.schedule for arm in comparison.arms if arm.schedule is not None}
    if not known:
        return None
    rows = []
    for name, schedule in known.items():
        cells = [
            (letter == "F", "" if source == k else str(schedule.layer_ids[source]))
            for k, (letter, source) in enumerate(
                zip(schedule.pattern, schedule.source, strict=True)
            )
        ]
        rows.append((name, cells))
    ids = next(iter(known.values())).layer_ids
    return render("schedules.html.j2", rows=rows, ids=ids)
