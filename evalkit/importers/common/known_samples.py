"""The samples of a cell that the lines of an import may belong to, and how they are recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalkit.core.records import ItemRow
from evalkit.importers.common.clusters import pinned_records
from evalkit.importers.common.predictions import Line, Prediction
from evalkit.importers.common.questions import Question


@dataclass(frozen=True, slots=True)
class KnownSamples:
    """What is known of a cell before its lines are joined.

    Attributes:
        questions: by sample id, in order; empty where nothing is known.
        aliases: sample ids by the benchmark's own id, where they have one.
    """

    questions: Mapping[str, Question]
    aliases: Mapping[str, str]


def known_samples(task: str, items: Mapping[str, ItemRow], lines: Sequence[Line]) -> KnownSamples:
    """The samples of the pinned data where they are those of the run and the file, else the run's.

    Args:
        task: the cell.
        items: samples of the run, those of other cells too.
        lines: of the file; where most of them are no questions of the pinned data, it is about
            other data.
    """
    ours = {i: item for i, item in items.items() if item.task == task}
    questions = {i: Question.of(item) for i, item in ours.items()}
    aliases = {str(item.meta["_id"]): i for i, item in ours.items() if item.meta.get("_id")}
    records = pinned_records(task)
    pinned = {f"{task}/{k}": Question(r.answers, r.length) for k, r in enumerate(records)}
    if all(i in pinned and pinned[i].agrees(q) for i, q in questions.items()):
        golds = {question.references for question in pinned.values()}
        usable = [line for line in lines if isinstance(line, Prediction)]
        if sum(line.references in golds for line in usable) > len(usable) / 2:
            ids = {record.id: f"{task}/{k}" for k, record in enumerate(records)}
            return KnownSamples(pinned, ids | aliases)
    return KnownSamples(questions, aliases)
