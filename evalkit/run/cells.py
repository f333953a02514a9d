"""Cells of a run: they come and go as arms do, and grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from evalkit.core.records import RunRecord, TaskEntry
from evalkit.core.records.run import position
from evalkit.dsa.json_types import JsonObject, JsonValue, as_object
from evalkit.run.plan import RunPlan, changes
from evalkit.run.store import RunStore
from evalkit.tasks.registry import TASKS, build, content


def cells(todo: RunPlan) -> dict[str, JsonObject]:
    """What decides the samples of every cell, by its name.

    That is its section of the recipe, without the fields that only say which cells there are.
    """
    sections: dict[str, JsonObject] = {}
    for config in todo.config.tasks:
        section = _binding(content(config, todo.base_dir), TASKS.of(config).name)
        sections |= {task.name: section for task in build(config, todo.base_dir)}
    return sections


def _binding(section: JsonObject, kind: str) -> JsonObject:
    """The fields of a section that decide what a sample of it is."""
    chooses = TASKS[kind].chooses
    return {key: value for key, value in section.items() if key not in chooses}


def changed_cells(before: RunRecord, todo: RunPlan, wanted: JsonObject) -> list[str]:
    """What is different about cells that are asked again; those added or gone are no difference.

    Args:
        before: the run that is taken up again; one of an earlier version has its sections alone.
        todo: the run that is wanted.
        wanted: its identity.
    """
    if not before.cells:
        return changes(before.identity.get("tasks"), wanted.get("tasks"), "tasks")
    now, texts = cells(todo), []
    for name in before.cells:
        if name in now:
            old, kind = as_object(before.cells[name]), str(now[name]["kind"])
            texts += changes(_binding(old, kind), now[name], f"task {name}")  # 0.2 kept all of it
    return texts


def changed_counts(before: RunRecord, todo: RunPlan) -> list[str]:
    """Cells with another number of samples where arms stopped early: their order was for those."""
    if before.until_decided is None:
        return []
    wanted = {task.name: todo.count(task) for task in todo.tasks}
    return [
        f"task {task.name} had {task.samples} samples, {wanted[task.name]} are asked (arms"
        " stopped early on an order of drawing that was for those)"
        for task in before.tasks
        if wanted.get(task.name, task.samples) != task.samples
    ]


def task_entries(
    before: RunRecord | None, todo: RunPlan, store: RunStore, *, seen: bool
) -> list[TaskEntry]:
    """The cells for run.json.

    Those that samples are added to say so if a table was `seen`; those with fewer samples than were
    answered say how many were.
    """
    if before is None:
        return [TaskEntry.of(t.name, todo.count(t), dict(t.deviations)) for t in todo.tasks]
    old = {task.name: task for task in before.tasks}
    beyond = _beyond(before, todo, store)
    entries = []
    for task in todo.tasks:
        entry = TaskEntry.of(task.name, todo.count(task), dict(task.deviations))
        was = old.get(task.name)
        counts = () if was is None else was.looks
        if seen and was is not None and max(was.samples, was.answered) < entry.samples:
            counts = (*counts, max(was.samples, was.answered))
        entries.append(entry.with_looks(counts).with_answered(entry.samples + beyond[task.name]))
    return entries


def _beyond(before: RunRecord, todo: RunPlan, store: RunStore) -> Counter[str]:
    """How many samples beyond those that are asked an arm has answered, by cell.

    Which were answered first is not their order: an interrupted arm has any of them.
    """
    had = {task.name: task.samples for task in before.tasks if not task.answered}
    wanted = {task.name: todo.count(task) for task in todo.tasks}
    if all(count >= had.get(name, count + 1) for name, count in wanted.items()):
        return Counter()  # nothing needs to be read
    answered: dict[str, str] = {}
    for arm in before.arms:
        if arm.imported is None:
            answered |= store.answered_ids(arm.name)
    return Counter(
        cell for i, cell in answered.items() if cell in wanted and position(i) >= wanted[cell]
    )


def without_tasks(identity: Mapping[str, JsonValue]) -> JsonObject:
    """An identity without its cells, which are compared one by one, and without their number."""
    return {key: value for key, value in identity.items() if key not in ("tasks", "limit")}
