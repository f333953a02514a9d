"""Lines without ids get the sample whose question they answer; their order is the fallback.

Processes that append to one file write in any order, a restart shifts what follows it, and lines
that moved among equal golds look right where only the gold is compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evalkit.core.errors import EvalkitError
from evalkit.importers.common.predictions import Line, Prediction, PredictionSet
from evalkit.importers.common.questions import TELLING, Question


@dataclass(slots=True)
class _Joining:
    """Lines of one task on their way to its samples.

    Attributes:
        task: the cell.
        lines: what has a prediction, by position in the file.
        free: questions of the samples that have no line yet, by sample id.
        placed: sample id by position.
        moved: positions whose line is not at its own place.
    """

    task: str
    lines: dict[int, Prediction]
    free: dict[str, Question]
    placed: dict[int, str] = field(default_factory=dict)
    moved: list[int] = field(default_factory=list)

    def own_place(self, position: int) -> str:
        """The sample id of a line if the file has the benchmark's order."""
        return f"{self.task}/{position}"

    def place(self, position: int, sample_id: str) -> None:
        self.placed[position] = sample_id
        self.free.pop(sample_id, None)


def join(
    task: str, lines: Sequence[Line], samples: Mapping[str, Question], predictions: PredictionSet
) -> dict[str, Prediction]:
    """Predictions by sample id, in the order of the samples.

    A line that fits the sample at its own place belongs there; the others take the first free
    sample with their gold and length. What is left repeats another line and is dropped, or, where
    no sample asks its question, keeps its place.

    Args:
        task: the cell.
        lines: of the file, in order.
        samples: what is known of the cell; empty: the order of the file is all there is.
        predictions: takes note of what a reader should know.

    Raises:
        EvalkitError: the lines stand in another order than the samples, and too few of them can be
            told apart.
    """
    usable = {i: line for i, line in enumerate(lines) if isinstance(line, Prediction)}
    joining = _Joining(task, usable, dict(samples))
    for i, line in usable.items():
        question = joining.free.get(joining.own_place(i))
        if not samples or (question is not None and question.agrees(Question.of(line))):
            joining.place(i, joining.own_place(i))
    _by_content(joining, samples, predictions)
    _left(joining, samples, predictions)
    order = {sample_id: i for i, sample_id in enumerate(samples)}
    places = sorted(
        joining.placed, key=lambda i: order.get(joining.placed[i], len(order) + len(lines) + i)
    )
    return {joining.placed[i]: usable[i] for i in places}


def _by_content(
    joining: _Joining, samples: Mapping[str, Question], predictions: PredictionSet
) -> None:
    """Lines that are not at their place take the first free sample with their question."""
    lengths = all(q.length is not None for q in samples.values()) and all(
        Question.of(line).length is not None for line in joining.lines.values()
    )
    ids = defaultdict(list)
    for sample_id, question in samples.items():
        ids[_told(question, lengths)].append(sample_id)
    for i, line in joining.lines.items():
        same = ids.get(_told(Question.of(line), lengths), [])
        free = next((sample_id for sample_id in same if sample_id in joining.free), None)
        if i not in joining.placed and free is not None:
            joining.place(i, free)
            joining.moved.append(i)
    if not joining.moved:
        return
    alike = [
        i for i in joining.placed if len(ids[_told(Question.of(joining.lines[i]), lengths)]) > 1
    ]
    count, first = len(joining.placed), joining.lines[joining.moved[0]]
    if len(alike) > (1 - TELLING) * count:
        raise EvalkitError(
            f"{first.where}: not the answers at this place of {joining.task}, and its lines cannot"
            f" be put in order: {len(alike)} of {count} share their answers"
            f"{' and length' if lengths else ', and some tell no length'}"
        )
    note = (
        f"{joining.task}: {len(joining.moved)} of {len(joining.lines)} lines are not in the order"
        f" of the samples (first: {first.where}); joined by their answers"
        f"{' and length' if lengths else ''}"
    )
    if alike:
        note += f"; {len(alike)} lines that share those with another one, in their order"
    predictions.notes.append(note)


def _left(joining: _Joining, samples: Mapping[str, Question], predictions: PredictionSet) -> None:
    """Lines whose question has no free sample: repeated, or of no sample that is known."""
    taken = {sample_id: i for i, sample_id in joining.placed.items()}
    number = max(joining.lines, default=0) + len(samples)
    for i, line in joining.lines.items():
        if i in joining.placed:
            continue
        place, question = joining.own_place(i), Question.of(line)
        first = next((taken[s] for s in taken if s in samples and samples[s].agrees(question)), -1)
        in_order = not joining.moved and place not in samples
        if first >= 0 and not in_order:
            _note_repeat(line, joining.lines[first], predictions)
        elif place not in taken:
            joining.place(i, place)
            taken[place] = i
        else:
            number += 1
            joining.place(i, joining.own_place(number))


def _note_repeat(line: Prediction, first: Prediction, predictions: PredictionSet) -> None:
    if line.text != first.text:
        text = f"answers the question of {first.where} otherwise, which is kept"
        predictions.problem(line.where, "", text)


def _told(question: Question, lengths: bool) -> Question:
    """What is compared: the length too, where every line and every sample has one."""
    return question if lengths else Question(question.references, None)
