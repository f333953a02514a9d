"""Several run directories read as one, where they were asked, answered and scored alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.records import ArmEntry, ItemRow, RunRecord, SampleRow, ScoreRow
from evalkit.run.agreement import check_agreement
from evalkit.run.store import RunStore, slug

FACTS = ("weights_sha256", "indexer_sha256", "schedule", "imported")
"""What makes two arms of one name the same arm."""


class MergedRuns(RunStore):
    """Run directories as one run to read; nothing is written into them.

    Arms of one name are one arm where their facts are equal and no sample was answered
    differently; else the later one is shown as ``name (directory)``.

    Attributes:
        renamed: new name -> (directory, old name).
    """

    def __init__(self, stores: Sequence[RunStore]) -> None:
        """Raises EvalkitError where a shared sample has other gold, or see `check_agreement`."""
        super().__init__(stores[0].path)
        self.renamed: dict[str, tuple[Path, str]] = {}
        self._sources: dict[str, list[tuple[RunStore, str]]] = {}
        self._items = _items(stores)
        check_agreement(stores)
        self._stores = list(stores)
        self._run = self._merged(stores)

    @property
    def exists(self) -> bool:
        """There is something to read."""
        return True

    def read_run(self) -> RunRecord:
        """run.json of the first, with the arms and tasks of all."""
        return self._run

    def read_runs(self) -> list[RunRecord]:
        """run.json of each."""
        return [store.read_run() for store in self._stores]

    def read_items(self) -> dict[str, ItemRow]:
        """Gold of all."""
        return self._items

    def read_samples(self, arm: str, call: str = "samples") -> dict[str, SampleRow]:
        """Completions of an arm from all runs that have it."""
        parts = [store.read_samples(name, call) for store, name in self._sources[arm]]
        return {i: row for part in parts for i, row in part.items()}

    def read_scores(self, arm: str) -> dict[str, ScoreRow]:
        """Scores of an arm from all runs that have it."""
        parts = [store.read_scores(name) for store, name in self._sources[arm]]
        return {i: row for part in parts for i, row in part.items()}

    def arm_dir(self, arm: str) -> Path:
        """Directory of an arm in the first run that has it."""
        store, name = self._sources[arm][0]
        return store.path / "arms" / slug(name)

    def _merged(self, stores: Sequence[RunStore]) -> RunRecord:
        runs = [store.read_run() for store in stores]
        arms: dict[str, ArmEntry] = {}
        for store, run in zip(stores, runs, strict=True):
            for entry in run.arms:
                name = self._name(store, entry, arms)
                arms.setdefault(name, entry.renamed(name))
        return runs[0].merged_with(runs[1:], arms.values())

    def _name(self, store: RunStore, entry: ArmEntry, arms: Mapping[str, ArmEntry]) -> str:
        """The name under which an arm is read; notes where its records are."""
        name = entry.name
        if name in arms and not self._same(store, entry, arms[name]):
            name, k = f"{entry.name} ({store.path.name})", 2
            while name in arms:
                name, k = f"{entry.name} ({store.path.name} {k})", k + 1
            self.renamed[name] = (store.path, entry.name)
        self._sources.setdefault(name, []).append((store, entry.name))
        return name

    def _same(self, store: RunStore, entry: ArmEntry, old: ArmEntry) -> bool:
        if any(entry.stored.get(key) != old.stored.get(key) for key in FACTS):
            return False
        ours, theirs = store.read_samples(entry.name), self.read_samples(entry.name)
        return all(ours[i].completion == theirs[i].completion for i in ours.keys() & theirs.keys())


def open_runs(paths: Sequence[Path]) -> RunStore:
    """One run directory, or several merged.

    Raises:
        EvalkitError: no run there, or their data do not agree.
    """
    stores = [RunStore(path) for path in dict.fromkeys(path.resolve() for path in paths)]
    for store in stores:
        store.read_run()
    return stores[0] if len(stores) == 1 else MergedRuns(stores)


def _items(stores: Sequence[RunStore]) -> dict[str, ItemRow]:
    """Gold of all. Which samples share a text is told by a run of our own, if there is one."""
    items: dict[str, ItemRow] = {}
    imported: dict[str, bool] = {}
    for store in stores:
        foreign = store.read_run().is_imported
        for sample_id, item in store.read_items().items():
            old = items.setdefault(sample_id, item)
            told = imported.setdefault(sample_id, foreign)
            same = replace(old, cluster=item.cluster) if told or foreign else old
            if not same.same_gold_as(item):
                raise EvalkitError(
                    f"{store.path}: sample {sample_id} is not the one of {stores[0].path}"
                    " (other data, tokenizer or generator): these runs cannot be merged"
                )
            if told and not foreign:
                items[sample_id], imported[sample_id] = item, False
    return items
