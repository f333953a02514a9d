"""The run directories below a folder, one line each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.files import read_object
from evalkit.core.provenance import model_name
from evalkit.core.records import RunRecord
from evalkit.dsa.json_types import JsonObject, as_list, as_object
from evalkit.run.store import RunStore
from evalkit.stats import MACRO
from evalkit.stats.comparison import REPEAT


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run directory.

    Attributes:
        path: of it.
        when: its last answer, or the last change of run.json.
        models: of its arms, without folders; ``imported`` for arms that came from elsewhere.
        arms: names.
        verdicts: of the last comparison, by arm but the baseline and its repeat; on the average.
            Arms that were taken out since have none.
        compared: whether there was a comparison.
        answered: answers without failures, over all arms.
        planned: answers that there should be.
        fault: why it cannot be read; empty for a sound one.
    """

    path: Path
    when: datetime
    models: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    verdicts: tuple[tuple[str, str], ...] = ()
    compared: bool = False
    answered: int = 0
    planned: int = 0
    fault: str = ""

    @property
    def finished(self) -> bool:
        """Whether every arm has an answer to every sample, or was stopped once decided."""
        return not self.fault and self.answered >= self.planned > 0


def list_runs(folder: Path) -> list[ListedRun]:
    """The runs at or below a folder, the oldest first.

    Raises:
        EvalkitError: there is no such folder.
    """
    if not folder.is_dir():
        raise EvalkitError(f"{folder}: no such folder")
    return sorted(map(_listed, _directories(folder)), key=lambda run: (run.when, run.path))


def _directories(folder: Path) -> Iterator[Path]:
    """Folders that hold a run.json; nothing below one is looked at."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        if "run.json" in files:
            folders.clear()
            yield Path(place)


def _listed(path: Path) -> ListedRun:
    store = RunStore(path)
    when = _when(path)
    try:
        run = store.read_run()
        stopped = run.until_decided is not None and run.until_decided.finished
        rows = {(name, i): r for name in run.names for i, r in store.read_samples(name).items()}
        taken = run.taken_out(i for _, i in rows)
        answered = sum(not row.failed and i not in taken for (_, i), row in rows.items())
        return ListedRun(
            path,
            when,
            models=_models(run),
            arms=tuple(run.names),
            verdicts=tuple((arm, said) for arm, said in _verdicts(path) if arm in run.names),
            compared=(path / "compare.json").is_file(),
            answered=answered,
            planned=answered if stopped else run.planned * len(run.arms),
        )
    except EvalkitError as error:
        return ListedRun(path, when, fault=str(error).removeprefix(f"{path}: "))


def _when(path: Path) -> datetime:
    files = [path / "run.json", *path.glob("arms/*/samples.jsonl")]
    return datetime.fromtimestamp(max(file.stat().st_mtime for file in files)).astimezone()


def _models(run: RunRecord) -> tuple[str, ...]:
    names = (model_name(arm.model) or ("imported" if arm.imported else "") for arm in run.arms)
    return tuple(dict.fromkeys(filter(None, names)))


def _verdicts(path: Path) -> tuple[tuple[str, str], ...]:
    """Of compare.json; none where the arms were not compared yet."""
    try:
        data: JsonObject = read_object(path / "compare.json")
    except FileNotFoundError:
        return ()
    rows = [as_object(row) for row in as_list(data.get("rows"))]
    return tuple(
        (str(row.get("arm")), str(row.get("verdict")))
        for row in rows
        if row.get("task") == MACRO and row.get("verdict") not in ("baseline", REPEAT)
    )
