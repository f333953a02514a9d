"""What a line tells of its question, by which it is joined with the samples of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from evalkit.core.records import ItemRow
from evalkit.dsa.json_types import JsonObject
from evalkit.importers.common.predictions import Prediction

TELLING = 0.9
"""Share of the lines whose question must occur once, so that content tells their place."""


class Question(NamedTuple):
    """Gold and length of a sample: of LongBench's 4,750, ten share theirs with another one.

    Attributes:
        references: gold answers.
        length: of the text as the benchmark counts it; None where the record does not tell.
    """

    references: tuple[str, ...]
    length: int | None

    @classmethod
    def of(cls, sample: Prediction | ItemRow) -> Question:
        """Of an imported line, or of a sample of the run."""
        return cls(sample.references, _length(sample.meta))

    def agrees(self, other: Question) -> bool:
        """Whether both may be one question: equal gold, and equal length where both tell it."""
        return self.references == other.references and (
            self.length == other.length or self.length is None or other.length is None
        )


def telling(part: Sequence[Question | None], whole: Iterable[Question | None]) -> bool:
    """Whether most questions of a part occur once in the whole, so that they tell the place."""
    counts = Counter(whole)
    return None not in part and sum(counts[q] == 1 for q in part) >= TELLING * len(part)


def _length(meta: JsonObject) -> int | None:
    length = meta.get("length")
    return length if isinstance(length, int) else None
