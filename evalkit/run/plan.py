"""What a run will do, and what makes two runs the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evalkit.config.arm import ArmConfig
from evalkit.config.engine import ENGINES
from evalkit.config.run import RunConfig
from evalkit.config.selection import SELECTIONS
from evalkit.config.server import PLACE_FIELDS
from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import model_layout, resolve_model
from evalkit.core.secrets import hide_fields
from evalkit.dsa import Layout, ReuseSchedule
from evalkit.dsa.exported_checkpoint import exported_schedule
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.indexer_metadata import (
    IndexerFacts,
    IndexerFileError,
    indexer_facts,
    read_schedule,
)
from evalkit.dsa.json_types import JsonObject, JsonValue
from evalkit.tasks.base import Task
from evalkit.tasks.registry import TASKS, build_all, content


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run will do.

    Attributes:
        config: the recipe.
        tasks: the cells.
        models: checkpoint of each arm, resolved, by arm name.
        limit: first samples of each cell only, or None.
        indexers: facts of the distilled indexers, by the name of the arm that has some.
        base_dir: folder of the recipe.
        recipe_text: recipe.toml to be left in the run directory; "" where the user has a recipe.
        command: what was typed, for the report.
    """

    config: RunConfig
    tasks: tuple[Task, ...]
    models: Mapping[str, str]
    limit: int | None
    indexers: Mapping[str, IndexerFacts] = field(default_factory=dict)
    base_dir: Path = Path()
    recipe_text: str = ""
    command: str = "evalkit.evaluate(…)"

    def count(self, task: Task) -> int:
        """Samples of a cell that this run answers."""
        return len(task) if self.limit is None else min(len(task), self.limit)

    @property
    def samples(self) -> int:
        """Samples per arm."""
        return sum(self.count(task) for task in self.tasks)

    @property
    def packages(self) -> dict[str, str]:
        """Versions of the other packages that tasks, engine and selections come from."""
        kinds = [TASKS.of(task).name for task in self.config.tasks]
        engine = ENGINES.of(self.config.engine).name
        selections = [SELECTIONS.of(a.selection).name for a in self.config.arms if a.selection]
        guests = TASKS.packages(kinds) | ENGINES.packages([engine])
        return guests | SELECTIONS.packages(selections)

    @property
    def total(self) -> int:
        """Answers of the whole run."""
        return self.samples * len(self.config.arms)


def plan(config: RunConfig, base_dir: Path, limit: int | None = None) -> RunPlan:
    """Resolve models and build the tasks; nothing heavy is loaded.

    Args:
        config: the recipe.
        base_dir: its folder.
        limit: instead of the recipe's.

    Raises:
        EvalkitError: a model or a file that the recipe names is not there, or a schedule does not
            fit its model.
    """
    if limit is not None and limit < 1:
        raise EvalkitError(f"--limit {limit}: it must be 1 or more")
    _readable(config)
    limit = config.limit if limit is None else limit
    arms = tuple(_located(arm, base_dir) for arm in config.arms)
    config = config.model_copy(update={"arms": arms, "limit": limit})
    indexers = {arm.name: _indexer(arm) for arm in config.arms if arm.indexer is not None}
    models = {
        arm.name: resolve_model(arm.model or config.model or "", base_dir) for arm in config.arms
    }
    for arm in config.arms:
        _exported(arm, models[arm.name])
        if not arm.is_native or arm.selection is not None:
            layout = model_layout(models[arm.name])
            if layout is None:
                raise EvalkitError(
                    f"arm {arm.name}: {models[arm.name]} has no lightning indexer, a schedule"
                    " cannot act on it"
                )
            _fits(arm, layout.native)
            _selects(arm, layout)
    tasks = tuple(build_all(config.tasks, base_dir))
    return RunPlan(config, tasks, models, limit, indexers, base_dir)


def _readable(config: RunConfig) -> None:
    """Refuse an engine that cannot do what a section's samples ask of it."""
    engine = ENGINES.of(config.engine)
    reads = next((kind.name for kind in map(TASKS.of, config.tasks) if kind.reads), None)
    if reads is not None and not engine.likelihoods:
        able = ", ".join(kind.name for kind in ENGINES.usable() if kind.likelihoods)
        raise EvalkitError(
            f"engine.kind {engine.name} gives no log-probabilities of a text, which tasks of kind"
            f" {reads} need: use {able}, or leave those tasks out"
        )


def _located(arm: ArmConfig, base_dir: Path) -> ArmConfig:
    """The arm with an absolute path to its indexers."""
    if arm.indexer is None:
        return arm
    return arm.model_copy(update={"indexer": str((base_dir / arm.indexer).resolve())})


def _indexer(arm: ArmConfig) -> IndexerFacts:
    """Facts of an arm's distilled indexers; files that cannot be used are refused."""
    try:
        return indexer_facts(Path(arm.indexer or ""))
    except IndexerFileError as error:
        raise EvalkitError(f"arm {arm.name}: {error}") from None


def _exported(arm: ArmConfig, model: str) -> None:
    """Refuse a checkpoint with trained indexers whose schedule would not run, or that was edited.

    Where its config.json says the schedule in words that are read here, an arm that names none
    runs it; where it cannot, the arm has to name it.
    """
    try:
        schedule = exported_schedule(Path(model))
    except IndexerFileError as error:
        raise EvalkitError(f"arm {arm.name}: {error}") from None
    if schedule is None or not arm.is_native:
        return
    layout = model_layout(model)
    if layout is None or layout.native != schedule:
        raise EvalkitError(
            f"arm {arm.name}: the indexers in {model} serve {schedule}, which its config.json"
            f' cannot say to transformers: give the arm pattern = "{schedule.pattern}"'
        )


def _fits(arm: ArmConfig, native: ReuseSchedule) -> None:
    """Refuse a schedule that the model, or the arm's distilled indexers, cannot run under."""
    schedule = arm.schedule(native)
    if arm.indexer is None:
        return
    trained_for = read_schedule(Path(arm.indexer))
    if trained_for.layer_ids != native.layer_ids:
        raise EvalkitError(
            f"arm {arm.name}: {arm.indexer} was trained for a model with indexers at layers"
            f" {_span(trained_for.layer_ids)}, this one has them at {_span(native.layer_ids)}"
        )
    if schedule != trained_for:
        raise EvalkitError(
            f"arm {arm.name}: {arm.indexer} was trained for the schedule {trained_for}, not for"
            f" {schedule}; leave the arm's schedule out to take that one"
        )


def _selects(arm: ArmConfig, layout: Layout) -> None:
    """Refuse a selection that the model has no index scores for, or too few keys."""
    if arm.selection is None:
        return
    family = family_of(layout.model_type)
    if family.adapter is None:
        why = family.no_features or "transformers has no such model"
        raise EvalkitError(
            f"arm {arm.name}: {layout.model_type} cannot select by {arm.selection.text}, it has no"
            f" index scores here: {why}"
        )
    arm.require_selectable(layout.topk)


def _span(layers: tuple[int, ...]) -> str:
    return f"{layers[0]}-{layers[-1]} ({len(layers)})"


def identity(todo: RunPlan) -> JsonObject:
    """What decides the answers: the recipe without throughput, scoring, comparison and secrets."""
    recipe = todo.config.model_dump(mode="json", exclude={"compare", "scoring", "bench"})
    throughput = ENGINES.of(todo.config.engine).throughput
    recipe["tasks"] = [content(task, todo.base_dir) for task in todo.config.tasks]
    recipe["engine"] = {k: v for k, v in recipe["engine"].items() if k not in throughput}
    del recipe["model"]
    for arm in recipe["arms"]:
        model = todo.models[arm["name"]]
        # A directory is what its weights are (their hash is checked), not where it lies.
        here = "a directory" if Path(model).is_dir() else "a file"
        arm["model"] = here if Path(model).exists() else model
        if arm["indexer"] is not None:  # what the files hold, not where they lie
            arm["indexer"] = todo.indexers[arm["name"]]["indexer_sha256"]
        if arm["server"] is not None:
            arm["server"] = {k: v for k, v in arm["server"].items() if k not in PLACE_FIELDS}
    recipe["limit"] = todo.limit
    return hide_fields(recipe)


def changes(old: JsonValue, new: JsonValue, path: str = "") -> list[str]:
    """Differences of two recipes in words; arms that were only added are not one."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(k for k in new if k not in old)]
        return [
            text
            for k in keys
            for text in changes(old.get(k), new.get(k), f"{path}.{k}" if path else str(k))
        ]
    if isinstance(old, list) and isinstance(new, list) and old != new:
        if path == "arms":
            return _arm_changes(_by_name(old), _by_name(new))
        if len(old) == len(new):
            return [
                text
                for i, (a, b) in enumerate(zip(old, new, strict=True))
                for text in changes(a, b, f"{path}.{i}")
            ]
    return [] if old == new else [f"{path} was {old!r}, is {new!r}"]


def _by_name(arms: Sequence[JsonValue]) -> dict[str, JsonObject]:
    return {str(arm["name"]): arm for arm in arms if isinstance(arm, dict)}


def _arm_changes(old: Mapping[str, JsonObject], new: Mapping[str, JsonObject]) -> list[str]:
    texts: list[str] = []
    for name, arm in old.items():
        if name not in new:
            texts.append(f"arm {name} is gone")
        else:
            texts += changes(arm, new[name], f"arm {name}")
    return texts
