"""Sequential stopping: draw samples in a seeded order, stop each arm task by task once decided.

`evalkit run --until-decided`. An arm stops on a task when the confidence sequence of its paired
difference to the baseline excludes minus the margin, on either side. The decision is a function of
the answers drawn so far, so that a run that was killed goes on to the same one.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from evalkit.config.run import CompareConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.records import SampleRow, StoppingRecord
from evalkit.core.types import Renderer
from evalkit.dsa.json_types import JsonValue
from evalkit.run.plan import RunPlan
from evalkit.run.scoring import score_row
from evalkit.run.store import RunStore
from evalkit.stats import QUESTIONS, sampling_order, sequential_decision, sequential_verdicts
from evalkit.tasks.base import Task

LOOK = 32


class SequentialStopping:
    """The stopping rule of the confidence sequences (`evalkit.run.runner.StoppingRule`).

    Attributes:
        look: samples between two looks.
    """

    def __init__(
        self, todo: RunPlan, store: RunStore, *, question: str = "benchmark", look: int = LOOK
    ) -> None:
        """Raises EvalkitError for another question, or fewer than two arms."""
        if question not in QUESTIONS:
            raise EvalkitError(f"--question {question}: known are {', '.join(QUESTIONS)}")
        names = [arm.name for arm in todo.config.arms]
        if len(names) < 2:
            raise EvalkitError("--until-decided compares arms: the recipe has only one")
        self.look = look
        self.question = question
        self.settings: CompareConfig = todo.config.compare
        self.baseline = self.settings.baseline or names[0]
        self._arms = [name for name in names if name != self.baseline]
        self._scoring = todo.config.scoring
        self._store = store
        self._ids: dict[str, list[str]] = {}
        self._clusters: dict[str, list[str]] = {}
        self._scores: dict[str, dict[str, float]] = {name: {} for name in names}
        self._read: dict[str, int] = dict.fromkeys(names, 0)
        self._decided: dict[tuple[str, str], str] = {}

    def order(self, task: Task, count: int, renderer: Renderer) -> list[int]:
        """Positions of a task's first `count` samples as they are drawn, clusters together."""
        samples = [task.sample(i, renderer) for i in range(count)]
        clusters = [sample.cluster or sample.id for sample in samples]
        order = sampling_order(
            [sample.id for sample in samples], clusters=clusters, seed=self.settings.seed
        )
        self._ids[task.name] = [samples[i].id for i in order]
        self._clusters[task.name] = [clusters[i] for i in order]
        return order

    def exclude(self, arm: str) -> None:
        """Leave an arm that gets no answers out of every decision."""
        if arm in self._arms:
            self._arms.remove(arm)

    def done(self, arm: str, task: str) -> bool:
        """Whether an arm needs no more samples of a task; the baseline, when no other does."""
        if arm == self.baseline:
            return all(self.done(other, task) for other in self._arms)
        if (arm, task) not in self._decided:
            differences = self._differences(arm, task)
            if not differences:
                return False
            verdict, at = sequential_decision(
                differences,
                self._margin(task),
                len(self._ids[task]),
                self.question,
                clusters=self._clusters[task],
                confidence=self.settings.confidence,
            )
            if at is None:
                return False
            self._decided[arm, task] = verdict
        return True

    def record(self) -> StoppingRecord:
        """For run.json: both questions for every arm and task that has answers."""
        verdicts: dict[str, dict[str, JsonValue]] = {}
        for arm in self._arms:
            for task in self._ids:
                differences = self._differences(arm, task)
                if differences:
                    states = sequential_verdicts(
                        differences,
                        self._margin(task),
                        len(self._ids[task]),
                        clusters=self._clusters[task],
                        confidence=self.settings.confidence,
                    )
                    verdicts.setdefault(arm, {})[task] = {q: asdict(s) for q, s in states.items()}
        return StoppingRecord.parse(
            {
                "question": self.question,
                "look": self.look,
                "seed": self.settings.seed,
                "confidence": self.settings.confidence,
                "verdicts": verdicts,
            }
        )

    def _margin(self, task: str) -> float:
        return self.settings.margins.get(task, self.settings.margin)

    def _differences(self, arm: str, task: str) -> list[float]:
        """Arm minus baseline in the order drawn, up to the first sample that one of them lacks."""
        self._catch_up()
        ours, base = self._scores[arm], self._scores[self.baseline]
        differences = []
        for sample_id in self._ids.get(task, ()):
            if sample_id not in ours or sample_id not in base:
                break
            differences.append(ours[sample_id] - base[sample_id])
        return differences

    def _catch_up(self) -> None:
        """Score what was answered since the last look."""
        new = {arm: self._appended(arm) for arm in self._scores}
        if not any(new.values()):
            return
        items = self._store.read_items()
        for arm, rows in new.items():
            for row in rows:
                if row.sample_id not in items:  # of a cell that the recipe has no more
                    continue
                score = score_row(items[row.sample_id], row, self._scoring)
                self._scores[arm][row.sample_id] = score.score

    def _appended(self, arm: str) -> list[SampleRow]:
        """Answers of an arm since the last look."""
        path = self._store.arm_dir(arm) / "samples.jsonl"
        lines, self._read[arm] = _lines_from(path, self._read[arm])
        return [SampleRow.parse(json.loads(line)) for line in lines]


def _lines_from(path: Path, start: int) -> tuple[list[bytes], int]:
    """Whole lines of a file from a position on, and the position behind them."""
    if not path.exists():
        return [], start
    with path.open("rb") as handle:
        handle.seek(start)
        data = handle.read()
    whole = data[: data.rfind(b"\n") + 1]
    return [line for line in whole.split(b"\n") if line.strip()], start + len(whole)
