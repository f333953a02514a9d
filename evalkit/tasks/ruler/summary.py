"""What RULER reports: score per length, both weighted averages, effective length."""

from __future__ import annotations

from collections.abc import Sequence

from evalkit.core.grid import Grid, joined, number
from evalkit.tasks.common.summary import Scored, Summary, shared_notes
from evalkit.tasks.ruler.aggregate import THRESHOLD, Aggregate, aggregate
from evalkit.tasks.ruler.config import NAMES


def summaries(scored: Scored) -> list[Summary]:
    """One row per arm; nothing for a few tasks at one length, which the task table says."""
    by_arm = {arm: a for arm, cells in scored.means().items() if (a := aggregate(cells))}
    if not any(len(a.lengths) > 1 or not a.lengths[0].missing for a in by_arm.values()):
        return []
    lengths = sorted({row.length for a in by_arm.values() for row in a.lengths})
    tasks = {task for means in scored.means().values() for task in means}
    cells = {task for task in tasks if task.partition("@")[0] in NAMES}
    rows = tuple((scored.label(arm, cells), *_cells(a, lengths)) for arm, a in by_arm.items())
    head = ("arm", *map(str, lengths), "mean", "wAvg (inc)", "wAvg (dec)", "effective length")
    effective = ("RULER by length; effective: the longest with", number(THRESHOLD), "or more")
    title = joined(effective)
    summary = Summary(
        "ruler",
        Grid(title, head, rows, tuple(range(1, len(head)))),
        shared_notes({arm: a.notes for arm, a in by_arm.items()}),
        {
            arm: {
                "lengths": {str(row.length): row.score for row in a.lengths},
                "average": a.average,
                "weighted_increasing": a.weighted_increasing,
                "weighted_decreasing": a.weighted_decreasing,
                "effective_length": a.effective_length,
                "complete": a.complete,
                "notes": list(a.notes),
            }
            for arm, a in by_arm.items()
        },
    )
    return [summary]


def _cells(arm: Aggregate, lengths: Sequence[int]) -> list[str]:
    scores = {row.length: row.score for row in arm.lengths}
    reached = "none" if arm.effective_length is None else str(arm.effective_length)
    averages = (arm.average, arm.weighted_increasing, arm.weighted_decreasing)
    return [*(number(scores.get(length)) for length in lengths), *map(number, averages), reached]
