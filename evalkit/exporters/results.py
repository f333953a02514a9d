"""The results of one arm as exporters want them: cells with their samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.records import ArmEntry, ItemRow, RunRecord, SampleRow, ScoreRow
from evalkit.run.current_scores import CurrentScores, current_scores
from evalkit.run.store import RunStore


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """One sample: its gold, the answer and the score."""

    item: ItemRow
    row: SampleRow
    score: ScoreRow


@dataclass(frozen=True, slots=True)
class ScoredCell:
    """One task as it was scored.

    Attributes:
        name: the cell, such as ``vt@4096``.
        metric: in `evalkit.scorers`.
        samples: in the order of the plan.
        planned: samples of the task in this run.
        taken: further samples, which were taken out after they were answered.
    """

    name: str
    metric: str
    samples: tuple[ScoredSample, ...]
    planned: int
    taken: int = 0

    @property
    def scores(self) -> list[float]:
        """One number in [0, 1] per sample."""
        return [float(sample.score.score) for sample in self.samples]

    @property
    def mean(self) -> float:
        """Of the scores; failed generations count 0."""
        return math.fsum(self.scores) / len(self.samples)

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean of independent samples; None for a single one."""
        n = len(self.samples)
        if n < 2:
            return None
        squares = math.fsum((score - self.mean) ** 2 for score in self.scores)
        return math.sqrt(squares / (n - 1) / n)

    @property
    def errors(self) -> int:
        """Failed generations among the samples."""
        return sum("error" in sample.score.flags for sample in self.samples)


@dataclass(frozen=True, slots=True)
class ScoredArm:
    """One arm of a run.

    Attributes:
        arm: its entry in run.json.
        run: run.json.
        cells: tasks with scores, in order.
        date: of the last answer.
    """

    arm: ArmEntry
    run: RunRecord
    cells: tuple[ScoredCell, ...]
    date: datetime

    @property
    def name(self) -> str:
        """Of the arm."""
        return self.arm.name

    @property
    def model(self) -> str:
        """The checkpoint without the folders of this machine; the arm's name if not known."""
        model = self.arm.model or ""
        return Path(model).name if Path(model).is_absolute() else model or self.name


def results(store: RunStore, arm: str | None = None) -> Iterator[ScoredArm]:
    """Every scored arm of a run, or the one named.

    Raises:
        EvalkitError: no run here, no such arm, or no scores.
    """
    run = store.read_run()
    if arm is not None and arm not in run.names:
        raise EvalkitError(f"no arm {arm} in {store.path} ({', '.join(run.names)})")
    items = store.read_items()
    names = [name for name in run.names if arm in (None, name)]
    current = current_scores(store, names)
    scored = [
        _arm(store, run, run.arm(name), items, current[name])
        for name in names
        if current[name].scores
    ]
    if not scored:
        raise EvalkitError(f"{store.path}: no scores of {arm or 'any arm'}: run evalkit score")
    yield from scored


def _arm(
    store: RunStore,
    run: RunRecord,
    entry: ArmEntry,
    items: Mapping[str, ItemRow],
    current: CurrentScores,
) -> ScoredArm:
    planned = {task.name: task.samples for task in run.tasks}
    taken = {task: answered - asked for task, (asked, answered) in run.reduced.items()}
    cells: dict[str, list[ScoredSample]] = {}
    for sample_id, score in current.scores.items():
        sample = ScoredSample(items[sample_id], current.answers[sample_id], score)
        cells.setdefault(sample.item.task, []).append(sample)
    changed = (store.arm_dir(entry.name) / "samples.jsonl").stat().st_mtime
    return ScoredArm(
        entry,
        run,
        tuple(
            ScoredCell(
                name,
                samples[0].item.metric,
                tuple(samples),
                planned.get(name, len(samples)),
                taken.get(name, 0),
            )
            for name, samples in cells.items()
        ),
        datetime.fromtimestamp(changed, UTC),
    )
