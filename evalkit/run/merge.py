"""Several run directories read as one, where their data and prompts agree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.run.store import RunStore, slug

FACTS = ("weights_sha256", "indexer_sha256", "schedule", "prompts_sha256", "imported")
"""What makes two arms of one name the same arm."""


class MergedRuns(RunStore):
    """Run directories as one run to read; nothing is written into them.

    Arms of one name are one arm where their facts are equal and no sample was answered
    differently; else the later one is shown as ``name (directory)``.

    Attributes:
        renamed: new name -> (directory, old name).
    """

    def __init__(self, stores: Sequence[RunStore]) -> None:
        """Raises EvalkitError where a shared sample has other gold or was asked otherwise."""
        super().__init__(stores[0].path)
        self.renamed: dict[str, tuple[Path, str]] = {}
        self._sources: dict[str, list[tuple[RunStore, str]]] = {}
        self._items = _items(stores)
        self._run = self._merged(stores)

    @property
    def exists(self) -> bool:
        """There is something to read."""
        return True

    def read_run(self) -> dict[str, Any]:
        """run.json of the first, with the arms and tasks of all."""
        return self._run

    def read_items(self) -> dict[str, dict[str, Any]]:
        """Gold of all."""
        return self._items

    def read_samples(self, arm: str, call: str = "samples") -> dict[str, dict[str, Any]]:
        """Completions of an arm from all runs that have it."""
        parts = [store.read_samples(name, call) for store, name in self._sources[arm]]
        return {i: row for part in parts for i, row in part.items()}

    def read_scores(self, arm: str) -> dict[str, dict[str, Any]]:
        """Scores of an arm from all runs that have it."""
        parts = [store.read_scores(name) for store, name in self._sources[arm]]
        return {i: row for part in parts for i, row in part.items()}

    def arm_dir(self, arm: str) -> Path:
        """Directory of an arm in the first run that has it."""
        store, name = self._sources[arm][0]
        return store.path / "arms" / slug(name)

    def _merged(self, stores: Sequence[RunStore]) -> dict[str, Any]:
        runs = [store.read_run() for store in stores]
        arms: dict[str, dict[str, Any]] = {}
        for store, run in zip(stores, runs, strict=True):
            for found in run["arms"]:
                name = self._place(store, found, arms)
                arms.setdefault(name, {**found, "name": name})
        tasks: dict[str, Any] = {}
        for task in (task for run in runs for task in run["tasks"]):
            old = tasks.setdefault(task["name"], task)
            if task["samples"] > old["samples"]:
                tasks[task["name"]] = task
        merged = {**runs[0], "arms": list(arms.values()), "tasks": list(tasks.values())}
        merged["merged"] = [run.get("identity_sha256") for run in runs]
        return merged

    def _place(
        self, store: RunStore, found: Mapping[str, Any], arms: Mapping[str, Mapping[str, Any]]
    ) -> str:
        """The name under which an arm is read; notes where its records are."""
        name = str(found["name"])
        if name in arms and not self._same(store, found, arms[name]):
            name, k = f"{name} ({store.path.name})", 2
            while name in arms:
                name, k = f"{found['name']} ({store.path.name} {k})", k + 1
            self.renamed[name] = (store.path, found["name"])
        self._sources.setdefault(name, []).append((store, found["name"]))
        return name

    def _same(self, store: RunStore, found: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        if any(found.get(key) != old.get(key) for key in FACTS):
            return False
        ours, theirs = store.read_samples(found["name"]), self.read_samples(found["name"])
        return all(
            ours[i]["completion"] == theirs[i]["completion"] for i in ours.keys() & theirs.keys()
        )


def open_runs(paths: Sequence[Path]) -> RunStore:
    """One run directory, or several merged.

    Raises:
        EvalkitError: no run there, or their data do not agree.
    """
    stores = [RunStore(path) for path in dict.fromkeys(path.resolve() for path in paths)]
    for store in stores:
        store.read_run()
    return stores[0] if len(stores) == 1 else MergedRuns(stores)


def _items(stores: Sequence[RunStore]) -> dict[str, dict[str, Any]]:
    """Gold of all; whether prompts agree is checked where arms are compared."""
    items: dict[str, dict[str, Any]] = {}
    for store in stores:
        for sample_id, item in store.read_items().items():
            old = items.setdefault(sample_id, item)
            if old is not item and _gold(old) != _gold(item):
                raise EvalkitError(
                    f"{store.path}: sample {sample_id} is not the one of {stores[0].path}"
                    " (other data, tokenizer or generator): these runs cannot be merged"
                )
    return items


def _gold(item: Mapping[str, Any]) -> str:
    keys = ("task", "metric", "references", "cluster")
    return json.dumps([item[key] for key in keys], sort_keys=True)
