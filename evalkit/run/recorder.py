"""run.json of a run under way: begun or taken up again, and what each arm really is."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from statistics import median_high

from evalkit.config.arm import ArmConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import optional_fields
from evalkit.core.model_info import model_layout
from evalkit.core.provenance import environment, with_guests
from evalkit.core.recipe import canonical_hash
from evalkit.core.records import ArmEntry, Invocation, RunRecord, StoppingRecord
from evalkit.core.secrets import hide_fields, redact_message
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.index_cost import index_cost
from evalkit.dsa.json_types import JsonObject
from evalkit.run.cells import (
    cells,
    changed_cells,
    changed_counts,
    task_entries,
    without_tasks,
)
from evalkit.run.plan import RunPlan, changes, identity
from evalkit.run.store import RunStore


class RunRecorder:
    """Keeps run.json; nothing but `__init__` and `write` touches the disk.

    Attributes:
        run: run.json as it stands.
    """

    def __init__(self, todo: RunPlan, store: RunStore) -> None:
        """Raises EvalkitError where the directory holds a different run."""
        self._todo, self._store = todo, store
        wanted = identity(todo)
        before = self._before(wanted)
        known = {} if before is None else optional_fields(before.stored, "environment")
        self.run = RunRecord.begun(
            before,
            identity=wanted,
            identity_sha256=canonical_hash(wanted),
            recipe=hide_fields(todo.config.model_dump(mode="json")),
            cells=cells(todo),
            tasks=task_entries(before, todo, store, seen=(store.path / "compare.json").exists()),
            arms=[arm.name for arm in todo.config.arms],
            environment=with_guests(environment(), todo.packages, known),
        )
        self._before_this = self.run.invocations
        self._clock = time.monotonic()
        self._this = Invocation(
            redact_message(todo.command),
            str(todo.base_dir.resolve()),
            datetime.now().astimezone().isoformat(timespec="seconds"),
            0.0,
        )
        self.write()
        if todo.recipe_text:
            store.write_recipe(todo.recipe_text)

    def _before(self, wanted: JsonObject) -> RunRecord | None:
        """The run that is taken up again, after a check that it is the same.

        A directory without a single answer binds nobody: what failed at once is mended in the
        recipe.
        """
        if not self._store.exists:
            return None
        before = self._store.read_run()
        if not self._store.answered:
            self._store.forget_items()
            return None
        ours, theirs = without_tasks(hide_fields(before.identity)), without_tasks(wanted)
        differences = [*changed_cells(before, self._todo, wanted), *changes(ours, theirs)]
        differences += changed_counts(before, self._todo)
        if differences:
            raise EvalkitError(
                f"{self._store.path} holds another run; changed: {'; '.join(differences[:4])}"
                f"{' …' if len(differences) > 4 else ''}. Use another --out, or the old recipe"
            )
        return before

    def write(self) -> None:
        """To the disk."""
        this = replace(self._this, seconds=round(time.monotonic() - self._clock, 1))
        self.run = self.run.with_invocations([*self._before_this, this])
        self._store.write_run(self.run)

    def describe(
        self, arm: ArmConfig, model: str, facts: JsonObject, schedule: ReuseSchedule | None
    ) -> None:
        """What an arm really is; a changed checkpoint is refused.

        Args:
            arm: of the recipe.
            model: its checkpoint.
            facts: of the checkpoint and the prompts, among them two hashes.
            schedule: None for a model without indexers.

        Raises:
            EvalkitError: weights or prompts are not those of the answers that are here.
        """
        entry = self.run.arm(arm.name)
        for key in ("weights_sha256", "prompts_sha256"):
            old = entry.stored.get(key, facts[key])
            if old != facts[key]:
                raise EvalkitError(
                    f"{self._store.path}: arm {arm.name}: {key} changed since this run began"
                    f" (was {str(old)[:12]}, is {str(facts[key])[:12]}); use a new directory"
                )
        note = None
        if arm.lag and schedule is not None and schedule.lag == 0:
            note = (
                f"a lag of {arm.lag} changes nothing here: {len(schedule.full_layers)} full"
                " layers are too few for it"
            )
        parity_of = None if arm.server is None else arm.server.parity_of
        selection = None if arm.selection is None else arm.selection.text
        entry = entry.described(model, facts, schedule, note, parity_of, selection)
        indexers = self._todo.indexers.get(arm.name)
        self._replace(entry if indexers is None else entry.with_indexers(indexers))

    def note_check(self, arm: str, check: JsonObject) -> None:
        """What was found out about an arm's servers."""
        self._replace(self.run.arm(arm).with_check(check))

    def note_engagement(self, arm: str, proof: JsonObject) -> None:
        """Keep the strongest evidence: one block that was not engaged spoils the arm."""
        entry = self.run.arm(arm)
        before = entry.engagement
        if entry.check is not None:  # the weakest of all starts of the server counts
            unknown = entry.check.verdict == "unknown"
            now = f"unknown: {entry.check.reason}" if unknown else entry.check.verdict
            proof = {"verdict": before if before.startswith("unknown") else now}
        elif before == "not engaged" or (before and str(proof["verdict"]).startswith("unknown")):
            return
        self._replace(entry.with_engagement(proof))

    def note_index_costs(self, arm: ArmConfig, schedule: ReuseSchedule | None) -> None:
        """What selecting costs an arm, for the middle prompt of every task that it answered.

        Nothing is noted of runs in which every layer selects as it was trained.
        """
        if schedule is None or not any(arm.selection for arm in self._todo.config.arms):
            return
        layout = model_layout(self._todo.models[arm.name])
        if layout is None or layout.heads is None:
            return
        lengths: dict[str, list[int]] = {}
        for row in self._store.read_samples(arm.name).values():
            if row.prompt_tokens is not None and row.prompt_tokens >= layout.ratio:
                lengths.setdefault(row.task, []).append(row.prompt_tokens)
        costs = {
            task: index_cost(
                arm.selection,
                schedule,
                heads=layout.heads,
                tokens=median_high(counts),
                ratio=layout.ratio,
            )
            for task, counts in lengths.items()
        }
        self._replace(self.run.arm(arm.name).with_index_costs(costs))

    def note_until_decided(self, record: StoppingRecord | None) -> None:
        """What was decided early; None where everything is answered.

        Raises:
            EvalkitError: samples were taken out after they were answered: none are drawn any more.
        """
        taken = next((task for task in self.run.tasks if task.answered), None)
        if record is not None and taken is not None:
            raise EvalkitError(
                f"--until-decided: task {taken.name} has answers to {taken.answered} samples,"
                f" {taken.samples} are asked: ask for all of them, or use another --out"
            )
        self.run = self.run.with_until_decided(record)

    def _replace(self, entry: ArmEntry) -> None:
        self.run = self.run.with_arm(entry)
