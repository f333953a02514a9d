"""All kinds of tasks a recipe can name; a new one is one line here, or an entry point elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import SerializeAsAny

from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.core.kinds import Kinds
from evalkit.core.plugins import running
from evalkit.core.recipe import Strict
from evalkit.dsa.json_types import JsonObject
from evalkit.tasks.base import Task, TaskKind

TASKS: Kinds[TaskKind[Any]] = Kinds(
    "kind of task",
    TaskKind,
    {  # in the order of the columns of a report
        "longbench": "evalkit.tasks.longbench:KIND",
        "ruler": "evalkit.tasks.ruler:KIND",
        "longbench_v2": "evalkit.tasks.longbench_v2:KIND",
        "needle": "evalkit.tasks.needle:KIND",
        "needle_kamradt": "evalkit.tasks.needle.kamradt:KIND",
        "graphwalk": "evalkit.tasks.graphwalk:KIND",
        "coreference": "evalkit.tasks.coreference:KIND",
        "records": "evalkit.tasks.records:KIND",
        "perplexity": "evalkit.tasks.perplexity:KIND",
    },
    "evalkit.tasks",
)

TaskConfig = Annotated[SerializeAsAny[Strict], TASKS.section()]
"""A recipe's task section; its ``kind`` says which."""

PARTS = {"name", "deviations", "sample", "__len__"}
"""What every task has."""


class Described(NamedTuple):
    """One task that a recipe can name.

    Attributes:
        kind: of the section.
        task: within the kind.
        text: one line about it, or about the fault of its package.
        package: name and version; empty for ours.
    """

    kind: str
    task: str
    text: str
    package: str = ""


def build(config: Strict, base_dir: Path) -> list[Task]:
    """The tasks of one section, one per cell.

    Args:
        config: the section.
        base_dir: folder of the recipe, for paths in it.

    Raises:
        EvalkitError: a file that the section names cannot be used, or the kind's package has a
            fault.
    """
    kind = TASKS.of(config)
    with running(TASKS.package(kind.name)):
        tasks = list(kind.build(config, base_dir))
    for task in tasks:
        missing = PARTS.difference(dir(task))
        if missing:
            raise EvalkitError(
                f"{TASKS.package(kind.name)}: {kind.name} built a {type(task).__name__}, which is"
                f" no task: it has no {', '.join(sorted(missing))}"
            )
    return tasks


def build_all(configs: Sequence[Strict], base_dir: Path) -> list[Task]:
    """The tasks of a recipe, section by section.

    Raises:
        EvalkitError: as `build`, two cells have one name, or one has the name of a benchmark that
            it is not.
    """
    tasks: dict[str, Task] = {}
    for config in configs:
        for task in build(config, base_dir):
            if task.name in tasks:
                raise EvalkitError(
                    f"two cells are named {task.name}; list the task once, or name the section"
                    " apart"
                )
            _refuse_borrowed_name(task.name, TASKS.of(config).name)
            tasks[task.name] = task
    return list(tasks.values())


def _refuse_borrowed_name(cell: str, kind: str) -> None:
    """Tables would put the cell into the column of a benchmark of ours."""
    for other in TASKS.ours():
        if other.name != kind and other.column(cell) is not None:
            raise EvalkitError(
                f"{cell} is the name of a cell of {other.name}: name the section apart"
            )


def content(config: Strict, base_dir: Path) -> JsonObject:
    """A section by what decides its samples: files by their content, not by where they lie.

    Raises:
        EvalkitError: a file cannot be read.
    """
    return {**config.model_dump(mode="json"), **TASKS.of(config).contents(config, base_dir)}


def describe() -> list[Described]:
    """Everything a recipe can name; needs no data. A package with a fault is told, too."""
    rows = []
    for name in TASKS:
        plugin = TASKS.plugins.get(name)
        package = "" if plugin is None else plugin.package
        try:
            texts = TASKS[name].descriptions()
            rows += [Described(name, task, text, package) for task, text in texts.items()]
        except Exception as error:
            if plugin is None:
                raise
            reason = in_one_line(error).removeprefix(f"{package}: ")
            rows.append(Described(name, "–", f"not usable: {reason}", package))
    return rows


def kind_of(cell: str) -> TaskKind[Any] | None:
    """The kind that has a column for a cell, by the cell's name."""
    return next((kind for kind in TASKS.usable() if kind.column(cell) is not None), None)


def kinds_of(cells: Iterable[str]) -> list[TaskKind[Any]]:
    """The kinds that have a column for any of some cells, in the order of the registry."""
    by_name = {kind.name: kind for cell in cells if (kind := kind_of(cell)) is not None}
    return [by_name[name] for name in TASKS if name in by_name]
