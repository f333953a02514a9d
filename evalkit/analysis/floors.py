"""What knowing nothing scores: chance, or the best answer that is always the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from evalkit.config.run import ScoringConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.records import ItemRow
from evalkit.scorers import METRICS
from evalkit.scorers import score as metric_score

MOST_ANSWERS = 3
"""Golds tried as the answer to every sample: the most frequent ones."""


def floors(items: Mapping[str, ItemRow], scoring: ScoringConfig) -> dict[str, float]:
    """By sample id, what an arm that never reads its prompt scores; samples with 0 are left out.

    Of a task whose samples have different golds, the constant answer with the best mean: one of
    those that are the gold of several samples. A task with one gold for all (a single needle) has
    none: who says it has found it.

    Args:
        items: gold by sample id.
        scoring: how answers were scored.
    """
    tasks: dict[str, list[ItemRow]] = {}
    for item in items.values():
        tasks.setdefault(item.task, []).append(item)
    return {
        item.sample_id: floor
        for rows in tasks.values()
        for item, floor in zip(rows, _floors(rows, scoring), strict=True)
        if floor > 0.0
    }


def _floors(rows: Sequence[ItemRow], scoring: ScoringConfig) -> list[float]:
    try:
        best = [METRICS[rows[0].metric].chance] * len(rows)
        for answer in _constant_answers(rows):
            scores = [_score(row, answer, scoring) for row in rows]
            best = max(best, scores, key=math.fsum)
    except EvalkitError:  # a metric of a package that is not here any more: nothing is known
        return [0.0] * len(rows)
    return best


def _constant_answers(rows: Sequence[ItemRow]) -> list[str]:
    """The most frequent golds; none where nothing repeats, or everything is the same."""
    counts = Counter(gold for row in rows for gold in dict.fromkeys(row.references))
    if any(count == len(rows) for count in counts.values()):
        return []
    return [gold for gold, count in counts.most_common(MOST_ANSWERS) if count > 1]


def _score(row: ItemRow, answer: str, scoring: ScoringConfig) -> float:
    if not row.references:
        return 0.0
    return metric_score(
        row.metric,
        answer,
        row.references,
        mode=scoring.mode,
        meta=row.meta,
        edit_distance=scoring.edit_distance,
    )
