"""Sequential stopping: draw samples in a seeded order, stop each arm task by task once decided.

`evalkit run --until-decided`. An arm stops on a task when the confidence sequence of its paired
difference to the baseline excludes minus the margin, on either side; where the baseline runs twice,
against both runs; and where answers are no evidence, with all of them counted against the arm and
for it. The decision is a function of the answers drawn so far, so that a run that was killed goes
on to the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evalkit.config.run import CompareConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.records import SampleRow, StoppingRecord
from evalkit.core.types import Renderer
from evalkit.run.plan import RunPlan
from evalkit.run.scoring import score_row
from evalkit.run.store import RunStore
from evalkit.run.usable import is_usable
from evalkit.stats import QUESTIONS, looking_confidence, sampling_order, sequential_decision
from evalkit.stats.inputs import Floats
from evalkit.stats.unusable import difference_ends
from evalkit.tasks.base import Task

LOOK = 32
Answer = tuple[float, bool]
"""Score of an answer, and whether it is no evidence."""


class SequentialStopping:
    """The stopping rule of the confidence sequences (`evalkit.run.runner.StoppingRule`).

    Attributes:
        look: samples between two looks.
    """

    def __init__(
        self, todo: RunPlan, store: RunStore, *, question: str = "tasks", look: int = LOOK
    ) -> None:
        """Raises EvalkitError for another question, or fewer than two arms."""
        if question not in QUESTIONS:
            raise EvalkitError(f"--question {question}: known are {', '.join(QUESTIONS)}")
        names = [arm.name for arm in todo.config.arms]
        self.settings: CompareConfig = todo.config.compare
        self.baseline = self.settings.baseline or names[0]
        repeat = self.settings.repeat_of_baseline
        self._repeat = repeat if repeat != self.baseline else None
        self._arms = [name for name in names if name not in (self.baseline, self._repeat)]
        if not self._arms:
            raise EvalkitError("--until-decided compares arms: the recipe has only the baseline")
        self.look = look
        self.question = question
        self._scoring = todo.config.scoring
        self._store = store
        self._ids: dict[str, list[str]] = {}
        self._clusters: dict[str, list[str]] = {}
        self._answers: dict[str, dict[str, Answer]] = {name: {} for name in names}
        self._read: dict[str, int] = dict.fromkeys(names, 0)
        self._decided: set[tuple[str, str]] = set()

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
        if arm == self._repeat:
            self._repeat = None

    def done(self, arm: str, task: str) -> bool:
        """Whether an arm needs no more samples of a task; the baseline, when no other does."""
        if arm in (self.baseline, self._repeat):
            return all(self.done(other, task) for other in self._arms)
        if (arm, task) in self._decided:
            return True
        self._catch_up()
        decided = all(self._is_decided(d, task) for d in self._differences(arm, task))
        if decided:
            self._decided.add((arm, task))
        return decided

    def record(self) -> StoppingRecord:
        """For run.json: the question, and how samples were drawn."""
        return StoppingRecord.parse(
            {
                "question": self.question,
                "look": self.look,
                "seed": self.settings.seed,
                "confidence": self.settings.confidence,
                "order": self._ids,
                "clusters": self._clusters,
            }
        )

    def _is_decided(self, differences: Floats, task: str) -> bool:
        if not len(differences):
            return False
        _, at = sequential_decision(
            differences,
            self.settings.margins.get(task, self.settings.margin),
            len(self._ids[task]),
            self.question,
            clusters=self._clusters[task],
            confidence=looking_confidence(self.settings.confidence),
        )
        return at is not None

    def _differences(self, arm: str, task: str) -> Iterator[Floats]:
        """Arm minus baseline, and minus its repeat, at both ends that unusable answers leave open.

        In the order drawn, up to the first sample that one of them lacks.
        """
        ours = self._answers[arm]
        for other in filter(None, (self.baseline, self._repeat)):
            theirs = self._answers[other]
            drawn = []
            for name in self._ids.get(task, ()):
                if name not in ours or name not in theirs:
                    break
                drawn.append((*ours[name], *theirs[name]))
            a, no_a, b, no_b = np.array(drawn, dtype=np.float64).reshape(-1, 4).T
            yield from difference_ends(a, b, no_a > 0, no_b > 0)

    def _catch_up(self) -> None:
        """Score what was answered since the last look."""
        new = {arm: self._appended(arm) for arm in self._answers}
        if not any(new.values()):
            return
        items = self._store.read_items()
        for arm, rows in new.items():
            for row in rows:
                if row.sample_id not in items:  # of a cell that the recipe has no more
                    continue
                if items[row.sample_id].is_read:  # no score in [0, 1]: read to the end
                    continue
                score = score_row(items[row.sample_id], row, self._scoring)
                self._answers[arm][row.sample_id] = (score.score, not is_usable(score.flags))

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
