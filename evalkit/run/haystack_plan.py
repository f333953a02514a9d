"""Before a run: margins that its haystacks cannot decide, however many samples they hold."""

from __future__ import annotations

from collections.abc import Iterator

from evalkit.run.plan import RunPlan
from evalkit.stats.verdict_power import haystacks_for, undecidable_below
from evalkit.tasks.base import SharedHaystacks


def undecidable(todo: RunPlan) -> Iterator[str]:
    """One line for every task whose shared haystacks are too few for its margin."""
    settings = todo.config.compare
    if len(todo.config.arms) < 2:
        return
    for task in todo.tasks:
        shared = task.shared_haystacks if isinstance(task, SharedHaystacks) else None
        margin = settings.margins.get(task.name, settings.margin)
        if shared is None or margin == 0.0:
            continue
        count = min(shared, todo.count(task))
        least = undecidable_below(count, settings.confidence)
        if margin < least:
            yield (
                f"{task.name}: {count} shared haystacks decide no margin below"
                f" {100 * least:.2g} points, however many samples they hold;"
                f" {100 * margin:.2g} needs {haystacks_for(margin, settings.confidence):,} of them"
            )
