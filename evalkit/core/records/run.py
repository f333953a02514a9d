"""run.json: the tasks, the arms, the recipe, and what was decided on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from evalkit.core.json_fields import (
    all_parsed,
    by_name,
    fields,
    integer,
    number,
    optional_fields,
    optional_parsed,
    optional_text,
    text,
    texts,
)
from evalkit.core.records.arms import ArmEntry
from evalkit.dsa.json_types import JsonObject, as_list

FORMAT = 1
"""Of run.json and of the files beside it; a higher one was written by a later version."""


def position(sample_id: str) -> int:
    """Position of a sample in its task, by its id; 0 where the id does not tell."""
    index = sample_id.rpartition("/")[2]
    return int(index) if index.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """One task of a run.

    Attributes:
        name: of the cell.
        samples: planned per arm.
        deviations: departures from the official benchmark.
        looks: how many samples it had when a table was made and others were added then.
        answered: with those beyond `samples` that an arm had answered when fewer were asked; 0
            where there are none.
        stored: the JSON object.
    """

    name: str
    samples: int
    deviations: JsonObject
    looks: tuple[int, ...]
    answered: int
    stored: JsonObject = field(repr=False)

    @classmethod
    def of(cls, name: str, samples: int, deviations: JsonObject) -> TaskEntry:
        """A new entry."""
        return cls.parse({"name": name, "samples": samples, "deviations": dict(deviations)})

    @classmethod
    def parse(cls, data: JsonObject) -> TaskEntry:
        """Raises BadField."""
        return cls(
            text(data, "name"),
            integer(data, "samples"),
            optional_fields(data, "deviations"),
            tuple(integer({"looks": n}, "looks") for n in as_list(data.get("looks"))),
            integer(data, "answered") if "answered" in data else 0,
            data,
        )

    def with_samples(self, samples: int) -> TaskEntry:
        """With another number of samples."""
        return TaskEntry.parse({**self.stored, "samples": samples})

    def with_looks(self, looks: Iterable[int]) -> TaskEntry:
        """With the numbers of samples of earlier tables."""
        counts = list(looks)
        return TaskEntry.parse({**self.stored, **({"looks": counts} if counts else {})})

    def with_answered(self, answered: int) -> TaskEntry:
        """With the number of samples, those beyond the ones asked that were answered too."""
        if answered <= self.samples:
            return self
        return TaskEntry.parse({**self.stored, "answered": answered})

    def took_out(self, sample_id: str) -> bool:
        """Whether a sample of this task was taken out of the run after it was answered."""
        return self.answered > 0 and position(sample_id) >= self.samples


@dataclass(frozen=True, slots=True)
class StoppingRecord:
    """How `evalkit run --until-decided` drew the samples; what it decided follows from the scores.

    Attributes:
        question: a key of `evalkit.stats.QUESTIONS`; ``""`` in a run that did not come to its end.
        order: by task, ids of all its samples as they are drawn.
        clusters: by task, haystack of every sample in the same order.
        stored: the JSON object.
    """

    question: str
    order: Mapping[str, tuple[str, ...]]
    clusters: Mapping[str, tuple[str, ...]]
    stored: JsonObject = field(repr=False)

    @classmethod
    def parse(cls, data: JsonObject) -> StoppingRecord:
        """Raises BadField. One of an earlier version has no order: it reads as interrupted."""
        order = optional_fields(data, "order")
        clusters = optional_fields(data, "clusters")
        return cls(
            question=text(data, "question") if order else "",
            order={task: texts(order, task) for task in order},
            clusters={task: texts(clusters, task) for task in order},
            stored=data,
        )

    @classmethod
    def interrupted(cls) -> StoppingRecord:
        """Nothing was decided yet."""
        return cls.parse({"interrupted": True})

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.order)


@dataclass(frozen=True, slots=True)
class Environment:
    """What the numbers depend on besides recipe and data.

    Attributes:
        python: version.
        packages: version by name; None where one is not installed.
        commit: of the checkout, or None.
        guests: other packages whose tasks, scorers … were used, version by name.
    """

    python: str | None
    packages: Mapping[str, str | None]
    commit: str | None
    guests: Mapping[str, str]

    @classmethod
    def parse(cls, data: JsonObject) -> Environment:
        """Raises BadField."""
        return cls(
            optional_text(data, "python"),
            by_name(data, "packages", optional_text),
            optional_text(data, "commit"),
            by_name(data, "guests", text),
        )


@dataclass(frozen=True, slots=True)
class Invocation:
    """One process that answered.

    Attributes:
        command: as it was typed, without secrets.
        folder: of the recipe, for the paths in it.
        started: local time with its offset, ISO 8601, whole seconds.
        seconds: until the record was written last.
    """

    command: str
    folder: str
    started: str
    seconds: float

    @classmethod
    def parse(cls, data: JsonObject) -> Invocation:
        """Raises BadField."""
        return cls(
            command=text(data, "command"),
            folder=text(data, "folder"),
            started=text(data, "started"),
            seconds=number(data, "seconds"),
        )

    def json(self) -> JsonObject:
        """The object on disk."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """run.json.

    Attributes:
        arms: in order.
        tasks: in order.
        recipe: as it was run last.
        identity: what decides the answers; ``{"imported": true}`` where nothing was generated.
        identity_sha256: of it, or None.
        environment: of the last generating process.
        scoring: settings of the last scoring; empty before any.
        until_decided: what was decided early, or None.
        invocations: the processes that answered, in order; none in a run of an earlier version.
        merged: identities of the runs that this one was merged from; only in memory.
        stored: the JSON object.
    """

    arms: tuple[ArmEntry, ...]
    tasks: tuple[TaskEntry, ...]
    recipe: JsonObject
    identity: JsonObject
    identity_sha256: str | None
    environment: Environment
    scoring: JsonObject
    until_decided: StoppingRecord | None
    stored: JsonObject = field(repr=False)
    invocations: tuple[Invocation, ...] = ()
    merged: tuple[str | None, ...] = ()

    @classmethod
    def parse(cls, data: JsonObject) -> RunRecord:
        """Raises BadField."""
        return cls(
            arms=all_parsed(data, "arms", ArmEntry.parse),
            tasks=all_parsed(data, "tasks", TaskEntry.parse),
            recipe=fields(data, "recipe"),
            identity=optional_fields(data, "identity"),
            identity_sha256=optional_text(data, "identity_sha256"),
            environment=optional_parsed(data, "environment", Environment.parse)
            or Environment.parse({}),
            scoring=optional_fields(data, "scoring"),
            until_decided=optional_parsed(data, "until_decided", StoppingRecord.parse),
            stored=data,
            invocations=(
                all_parsed(data, "invocations", Invocation.parse) if "invocations" in data else ()
            ),
        )

    @classmethod
    def begun(
        cls,
        before: RunRecord | None,
        *,
        identity: JsonObject,
        identity_sha256: str,
        recipe: JsonObject,
        cells: JsonObject,
        tasks: Iterable[TaskEntry],
        arms: Iterable[str],
        environment: JsonObject,
    ) -> RunRecord:
        """A new run, or one that is taken up again: arms it has keep their entries.

        Cells that are not planned (imported arms have them) stay behind the planned ones.
        """
        old = {entry.name: entry for entry in before.arms} if before else {}
        new = [ArmEntry.parse({"name": name}) for name in arms if name not in old]
        planned = {task.name: task for task in tasks}
        gone = {*planned, *(before.cells if before else ())}
        left = [task for task in (before.tasks if before else ()) if task.name not in gone]
        stored: JsonObject = before.stored if before else {"format": FORMAT, "arms": []}
        return cls.parse(
            {
                **stored,
                "identity": identity,
                "recipe": recipe,
                "identity_sha256": identity_sha256,
                "cells": {**(before.cells if before else {}), **cells},
                "tasks": [task.stored for task in (*planned.values(), *left)],
                "arms": [entry.stored for entry in (*old.values(), *new)],
                "environment": environment,
            }
        )

    @classmethod
    def for_imports(cls, compare: JsonObject, environment: JsonObject) -> RunRecord:
        """A run directory that only imported arms have filled so far."""
        return cls.parse(
            {
                "format": FORMAT,
                "identity": {"imported": True},
                "recipe": {"compare": compare},
                "tasks": [],
                "arms": [],
                "environment": environment,
            }
        )

    @property
    def is_imported(self) -> bool:
        """Whether nothing was generated here."""
        return bool(self.identity.get("imported"))

    @property
    def cells(self) -> JsonObject:
        """What decides the samples of every cell that the recipe has or once had, by name."""
        return optional_fields(self.stored, "cells")

    @property
    def dropped(self) -> frozenset[str]:
        """Cells that the recipe has no more.

        Their answers stay on the disk, unread, until it has them again.
        """
        return frozenset(self.cells).difference(task.name for task in self.tasks)

    @property
    def reduced(self) -> dict[str, tuple[int, int]]:
        """(asked, answered) samples of the tasks that some were taken out of when answered."""
        return {task.name: (task.samples, task.answered) for task in self.tasks if task.answered}

    def taken_out(self, ids: Iterable[str]) -> frozenset[str]:
        """Those of some samples that were taken out of the run after they were answered.

        Their answers stay on the disk; verdicts hold with them, too.
        """
        tasks = {task.name: task for task in self.tasks if task.answered}
        cells = ((i, tasks.get(i.rpartition("/")[0])) for i in ids) if tasks else ()
        return frozenset(i for i, task in cells if task is not None and task.took_out(i))

    @property
    def names(self) -> list[str]:
        """Of the arms, in order."""
        return [arm.name for arm in self.arms]

    @property
    def planned(self) -> int:
        """Samples per arm."""
        return sum(task.samples for task in self.tasks)

    def arm(self, name: str) -> ArmEntry:
        """The entry of an arm; raises KeyError where there is none."""
        return {arm.name: arm for arm in self.arms}[name]

    def section(self, name: str) -> JsonObject:
        """A section of the recipe; empty where it has none."""
        section = self.recipe.get(name)
        return section if isinstance(section, dict) else {}

    def with_arm(self, entry: ArmEntry) -> RunRecord:
        """With another entry for an arm, or with one arm more."""
        arms = {arm.name: arm for arm in self.arms} | {entry.name: entry}
        return self._updated({"arms": [arm.stored for arm in arms.values()]})

    def with_tasks(self, tasks: Iterable[TaskEntry]) -> RunRecord:
        """With other tasks."""
        return self._updated({"tasks": [task.stored for task in tasks]})

    def with_scoring(self, scoring: JsonObject) -> RunRecord:
        """With the settings of a scoring."""
        return self._updated({"scoring": scoring})

    def with_invocations(self, invocations: Iterable[Invocation]) -> RunRecord:
        """With other processes that answered."""
        return self._updated({"invocations": [one.json() for one in invocations]})

    def with_environment(self, environment: JsonObject) -> RunRecord:
        """With other facts of the environment."""
        return self._updated({"environment": environment})

    def with_until_decided(self, record: StoppingRecord | None) -> RunRecord:
        """With what was decided early; None where everything is answered."""
        if record is None:
            return RunRecord.parse({k: v for k, v in self.stored.items() if k != "until_decided"})
        return self._updated({"until_decided": record.stored})

    def merged_with(self, others: Iterable[RunRecord], arms: Iterable[ArmEntry]) -> RunRecord:
        """This run with the arms given, and every task in its largest number of samples."""
        runs = (self, *others)
        tasks: dict[str, TaskEntry] = {}
        for task in (task for run in runs for task in run.tasks):
            old = tasks.setdefault(task.name, task)
            if (task.samples, task.answered) > (old.samples, old.answered):
                tasks[task.name] = task
        merged = replace(self, arms=tuple(arms), tasks=tuple(tasks.values()))
        return replace(merged, merged=tuple(run.identity_sha256 for run in runs))

    def _updated(self, changes: JsonObject) -> RunRecord:
        return RunRecord.parse({**self.stored, **changes})
