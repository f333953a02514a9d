"""All kinds of tasks a recipe can name; a new kind is one line in each of two places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from evalkit.core.errors import EvalkitError
from evalkit.tasks import coreference, graphwalk, longbench, longbench_v2, needle, ruler
from evalkit.tasks.base import Task

TaskConfig = Annotated[
    needle.NeedleConfig
    | needle.KamradtConfig
    | ruler.RulerConfig
    | graphwalk.GraphWalkConfig
    | coreference.CoreferenceConfig
    | longbench.LongBenchConfig
    | longbench_v2.LongBenchV2Config,
    Field(discriminator="kind"),
]
"""A recipe's task section; its ``kind`` says which."""

BUILDERS: dict[type[Any], Callable[[Any, Path], Sequence[Task]]] = {
    needle.NeedleConfig: needle.build,
    needle.KamradtConfig: needle.build_kamradt,
    ruler.RulerConfig: ruler.build,
    graphwalk.GraphWalkConfig: graphwalk.build,
    coreference.CoreferenceConfig: coreference.build,
    longbench.LongBenchConfig: longbench.build,
    longbench_v2.LongBenchV2Config: longbench_v2.build,
}


def build(config: TaskConfig, base_dir: Path) -> list[Task]:
    """The tasks of one section, one per cell.

    Args:
        config: the section.
        base_dir: folder of the recipe, for paths in it.

    Raises:
        EvalkitError: a file that the section names cannot be used.
    """
    return list(BUILDERS[type(config)](config, base_dir))


def build_all(configs: Sequence[TaskConfig], base_dir: Path) -> list[Task]:
    """The tasks of a recipe, section by section.

    Raises:
        EvalkitError: as `build`, or two cells have one name.
    """
    tasks = [task for config in configs for task in build(config, base_dir)]
    seen: set[str] = set()
    for task in tasks:
        if task.name in seen:
            raise EvalkitError(
                f"two cells are named {task.name}; list the task once, or name the section apart"
            )
        seen.add(task.name)
    return tasks


def describe() -> list[tuple[str, str, str]]:
    """(kind, task, one line) of everything a recipe can name; needs no data."""
    rows = [("needle", "needle", "access codes in a haystack: lengths × depths × repeats")]
    rows.append(("needle_kamradt", "kamradt", "the first needle test: its needle, grid and essays"))
    rows += [("ruler", name, text) for name, text in ruler.DESCRIPTIONS.items()]
    for name, facts in longbench.tasks().items():
        rows.append(("longbench", name, f"{facts.category} ({facts.language}), {facts.metric}"))
    rows += [("longbench_v2", mode, text) for mode, text in longbench_v2.DESCRIPTIONS.items()]
    rows += [("graphwalk", name, text) for name, text in graphwalk.DESCRIPTIONS.items()]
    text = "the i-th of several equal requests of a long conversation"
    return [*rows, ("coreference", "coreference", text)]
