"""Cells of a run: each is asked before the first answer, they come and go as arms do, and grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.records import RunRecord, TaskEntry
from evalkit.core.types import Renderer
from evalkit.dsa.json_types import JsonObject, JsonValue, as_object
from evalkit.run.plan import RunPlan, changes
from evalkit.run.store import RunStore
from evalkit.tasks.base import Task, samples
from evalkit.tasks.registry import TASKS, build, content

LONGEST = 2**24
"""No length is tried beyond this one."""

SHOWN = 6


def ask_first_prompts(todo: RunPlan, renderer: Renderer) -> None:
    """Make the first prompt of every cell, so that what cannot be asked is known at once.

    Raises:
        EvalkitError: some cells cannot be asked; names each, and the smallest length that would do.
    """
    faults = []
    for task in todo.tasks:
        if not todo.count(task):
            continue
        try:
            _ask(task, renderer)
        except EvalkitError as error:
            fits = _smallest_length(task, renderer) if "too short" in str(error) else None
            faults.append(f"{error}{'' if fits is None else f'; it fits from length {fits} on'}")
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise EvalkitError(f"nothing was asked yet: {'; '.join(faults[:SHOWN])}{more}")


def _ask(task: Task, renderer: Renderer) -> None:
    for sample in samples(task, renderer, [0]):
        renderer.render(sample)


def _smallest_length(task: Task, renderer: Renderer) -> int | None:
    """The smallest length at which the first prompt of a cell fits; None where it has none."""
    if not is_dataclass(task) or "length" not in {field.name for field in fields(task)}:
        return None

    def fits(length: int) -> bool:
        try:
            _ask(_of_length(task, length), renderer)
        except EvalkitError as error:
            if "too short" in str(error):
                return False
            raise
        return True

    low: int = task.length
    high = 2 * low
    try:
        while not fits(high):
            low, high = high, 2 * high
            if high > LONGEST:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
    except EvalkitError:  # for another reason: that one is said of the cell itself
        return None
    return high


def _of_length(task: Any, length: int) -> Task:  # a dataclass of whatever kind of task
    changed: Task = replace(task, length=length)
    return changed


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


def changed_counts(before: RunRecord, todo: RunPlan, store: RunStore) -> list[str]:
    """Cells with fewer samples than were answered: those would be compared, too.

    And with more, where arms stopped early: the order of drawing was for what there was.
    """
    wanted = {task.name: todo.count(task) for task in todo.tasks}
    had = {task.name: task.samples for task in before.tasks}
    answered: Counter[str] = Counter()
    if any(count < had.get(name, count + 1) for name, count in wanted.items()):
        for arm in before.arms:
            if arm.imported is None:
                answered |= store.answered_by_cell(arm.name)
    texts = [
        f"task {name} has answers to {answered[name]} samples, {count} are asked (samples may be"
        " added, not taken away)"
        for name, count in wanted.items()
        if answered[name] > count
    ]
    if before.until_decided is not None:
        texts += [
            f"task {task.name} had {task.samples} samples, {wanted[task.name]} are asked (arms"
            " stopped early on an order of drawing that was for those)"
            for task in before.tasks
            if task.samples < wanted.get(task.name, 0)
        ]
    return texts


def task_entries(before: RunRecord | None, todo: RunPlan, *, seen: bool) -> list[TaskEntry]:
    """The cells for run.json; those that samples are added to say so if a table was `seen`."""
    old = {task.name: task for task in before.tasks} if before else {}
    entries = []
    for task in todo.tasks:
        entry = TaskEntry.of(task.name, todo.count(task), dict(task.deviations))
        counts = old[task.name].looks if task.name in old else ()
        if seen and task.name in old and old[task.name].samples < entry.samples:
            counts = (*counts, old[task.name].samples)
        entries.append(entry.with_looks(counts))
    return entries


def without_tasks(identity: Mapping[str, JsonValue]) -> JsonObject:
    """An identity without its cells, which are compared one by one, and without their number."""
    return {key: value for key, value in identity.items() if key not in ("tasks", "limit")}
