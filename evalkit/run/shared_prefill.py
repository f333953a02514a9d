"""Arms that do the same with a prompt: it is read once for all of them.

A decode-only lag acts behind the prompt, so its arms fill the same cache as the arm without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evalkit.config.arm import ArmConfig
from evalkit.config.engine import ENGINES
from evalkit.core.model_info import model_layout
from evalkit.dsa import ReuseSchedule
from evalkit.run.plan import RunPlan

Schedules = Mapping[str, ReuseSchedule | None]
"""By arm; None: of a model without indexers."""


def prefill_groups(
    arms: Sequence[ArmConfig], schedules: Schedules, repeat: str | None = None
) -> list[list[ArmConfig]]:
    """Arms of one checkpoint in groups that read a prompt once, in the order of their first arms.

    No arm is in a group with one that does the same in decode, too: a repetition (A/A) measures
    nothing unless all of it is computed again.

    Args:
        arms: of one checkpoint.
        schedules: of these arms.
        repeat: the arm that repeats the baseline; it is alone.
    """
    groups: list[list[ArmConfig]] = []
    for arm in arms:
        for group in groups:
            if repeat in {arm.name, group[0].name}:
                continue
            if all(_reads_alike(arm, other, schedules) for other in group):
                group.append(arm)
                break
        else:
            groups.append([arm])
    return groups


def _reads_alike(one: ArmConfig, two: ArmConfig, schedules: Schedules) -> bool:
    """Whether two arms differ, and in decode only."""
    first, second = schedules[one.name], schedules[two.name]
    if first is None or second is None:
        return False
    if (one.indexer, one.selection) != (two.indexer, two.selection):
        return False
    alike = first.computes == second.computes
    alike &= first.sources("prefill") == second.sources("prefill")
    return alike and first.sources("decode") != second.sources("decode")


def prefills(todo: RunPlan) -> Iterator[str]:
    """One line where arms share prefills: how many there are."""
    engine, compare = ENGINES.of(todo.config.engine), todo.config.compare
    if not engine.shares_prefill:
        return
    count, arms = 0, todo.config.arms
    for model in dict.fromkeys(todo.models.values()):
        layout = model_layout(model)
        sharing = [arm for arm in arms if todo.models[arm.name] == model]
        schedules = {a.name: None if layout is None else a.schedule(layout.native) for a in sharing}
        count += len(prefill_groups(sharing, schedules, compare.repeat_of_baseline))
    if count < len(arms):
        yield (f"{len(arms)} arms, {count} prefills: arms alike up to decode share one")
