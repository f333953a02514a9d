"""What the benchmarks themselves report beside the mean of a cell, arm by arm."""

from __future__ import annotations

from collections.abc import Mapping

from evalkit.stats import ArmScores
from evalkit.tasks.common.summary import Items, Part, Scored, Summary
from evalkit.tasks.registry import kinds_of


def summaries(
    arms: Mapping[str, ArmScores], items: Items, part: Part | None = None
) -> tuple[Summary, ...]:
    """Every table that the run has scores for.

    Args:
        arms: scores by arm name, the baseline first.
        items: gold and facts by sample id.
        part: compares the arms on some tasks, for the intervals of plain means.
    """
    scored = Scored(arms, items, part)
    cells = dict.fromkeys(task for scores in arms.values() for task in scores.tasks)
    return tuple(table for kind in kinds_of(cells) for table in kind.summaries(scored))
