"""Gold of records that do not hold it: what failed has a question, too, and counts.

A script that writes failed questions without their answer would otherwise score its model on the
questions that it managed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from evalkit.core.records import ItemRow
from evalkit.importers.common.clusters import pinned_file
from evalkit.importers.common.predictions import Prediction, PredictionSet
from evalkit.tasks.longbench_v2 import items as longbench_v2


def fill_in_gold(predictions: PredictionSet, items: Mapping[str, ItemRow]) -> list[str]:
    """Add the records without gold, with that of the run's samples or of the pinned data.

    Args:
        predictions: takes the records whose gold is found.
        items: samples of the run.

    Returns:
        a line for every cell in which some have none: they are in no score.
    """
    by_id = {(i.task, str(i.meta["_id"])): i for i in items.values() if i.meta.get("_id")}
    left: Counter[str] = Counter()
    for prediction in predictions.without_gold:
        item = by_id.get((prediction.task, prediction.alias or ""))
        references = _pinned(prediction) if item is None else item.references
        if references is None:
            left[prediction.task] += 1
        else:
            predictions.add(replace(prediction, references=references))
    return [
        f"{task}: {n} records have no answer key, and neither the run nor the pinned data on this"
        " machine has it (import an arm with all of them first, or evalkit data prepare"
        " longbench_v2): they would leave the denominator"
        for task, n in left.items()
    ]


def _pinned(prediction: Prediction) -> tuple[str, ...] | None:
    """The letter of the question with the same id in the pinned file."""
    path = pinned_file("longbench_v2")
    if path is None:
        return None
    answers = {item.id: item.answer for item in longbench_v2.index(path).items}
    letter = answers.get(prediction.alias or "")
    return None if letter is None else (letter,)
