"""Arms taken out of a run directory, or called by another name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import TypeAlias

from evalkit.core.errors import EvalkitError
from evalkit.core.files import write_jsonl
from evalkit.core.plugins import near
from evalkit.core.recipe import canonical_hash
from evalkit.core.records import RunRecord
from evalkit.dsa.json_types import JsonObject, JsonValue, as_list, as_object
from evalkit.run.store import RunStore

Naming: TypeAlias = Callable[[str], str | None]
"""Another name for an arm; None for one that is gone."""

NAMING = ("baseline", "repeat_of_baseline", "parity_of")
"""Fields of recipe and run.json whose value is the name of an arm."""


def remove_arm(store: RunStore, name: str) -> None:
    """Take an arm and its answers out of a run; the caller holds the lock.

    run.json is written first: what is left after a kill is a folder that nothing names. Where it
    stands in the recipe still, the next `evalkit run` answers it afresh.

    Raises:
        EvalkitError: no such arm, or it is the only one.
    """
    run = _with(store, name)
    if len(run.arms) == 1:
        raise EvalkitError(f"{name} is the only arm of {store.path}: delete the directory instead")
    stored = _edited(run, lambda old: None if old == name else old)
    if name == (run.section("compare").get("baseline") or run.names[0]):  # decided against it
        stored = {key: value for key, value in stored.items() if key != "until_decided"}
    run = RunRecord.parse(stored)
    if run.is_imported:
        run = _without_lone_samples(store, run)
    store.write_run(run)
    shutil.rmtree(store.arm_dir(name), ignore_errors=True)


def rename_arm(store: RunStore, name: str, new: str) -> None:
    """Call an arm otherwise; the caller holds the lock. The recipe has to name it so, too.

    Raises:
        EvalkitError: no such arm, the new name is empty or taken.
    """
    run = _with(store, name)
    if not new.strip():
        raise EvalkitError("an arm needs a name")
    if new in run.names:
        raise EvalkitError(f"{store.path} has an arm {new} already: choose another name")
    before, after = store.arm_dir(name), store.arm_dir(new)
    shutil.rmtree(after, ignore_errors=True)  # what a kill in between left
    if before.is_dir():
        shutil.copytree(before, after)
    store.write_run(RunRecord.parse(_edited(run, lambda old: new if old == name else old)))
    shutil.rmtree(before, ignore_errors=True)


def _with(store: RunStore, name: str) -> RunRecord:
    run = store.read_run()
    if name not in run.names:
        raise EvalkitError(f"{store.path} has no arm {name}; {near(name, run.names)}")
    return run


def _edited(run: RunRecord, naming: Naming) -> JsonObject:
    """run.json with other names of arms; those that become None are gone."""
    stored = dict(_names(run.stored, naming))
    if run.until_decided is not None:
        verdicts = run.until_decided.stored["verdicts"]
        named = ((naming(arm), states) for arm, states in as_object(verdicts).items())
        kept = {arm: states for arm, states in named if arm is not None}
        stored["until_decided"] = {**run.until_decided.stored, "verdicts": kept}
    if run.identity_sha256 is not None:
        stored["identity_sha256"] = canonical_hash(as_object(stored["identity"]))
    return stored


def _names(value: JsonObject, naming: Naming) -> JsonObject:
    """A part of run.json with other names of arms, however deep they stand."""
    edited: dict[str, JsonValue] = {}
    for key, inner in value.items():
        if key in NAMING and isinstance(inner, str):
            edited[key] = naming(inner)
        elif key == "arms":
            entries = (_names(as_object(arm), naming) for arm in as_list(inner))
            named = ((naming(str(entry["name"])), entry) for entry in entries)
            edited[key] = [{**entry, "name": name} for name, entry in named if name is not None]
        else:
            edited[key] = _names(inner, naming) if isinstance(inner, Mapping) else inner
    return edited


def _without_lone_samples(store: RunStore, run: RunRecord) -> RunRecord:
    """Drop samples that no arm has any more: they would count as missing for the others."""
    answered = {i for name in run.names for i in store.read_samples(name)}
    items = [item for i, item in store.read_items().items() if i in answered]
    write_jsonl(store.path / "items.jsonl", (item.json() for item in items))
    counts: dict[str, int] = {}
    for item in items:
        counts[item.task] = counts.get(item.task, 0) + 1
    return run.with_tasks(
        task.with_samples(counts[task.name]) for task in run.tasks if task.name in counts
    )
