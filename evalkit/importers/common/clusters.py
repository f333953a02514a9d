"""Which imported samples share a text, so that they are one unit, as in a run of our own.

Told, in this order, by the pinned data where they are on this machine (nothing is fetched), by the
text in the record, by its length in words. Texts of equal length that are not the same are then one
unit too, which errs towards wide intervals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from evalkit.data import documents
from evalkit.data.sources import LONG_CONTEXT_EVAL, of_card, present
from evalkit.importers.common.predictions import Prediction
from evalkit.tasks.common.context_label import context_label
from evalkit.tasks.longbench import records
from evalkit.tasks.longbench.facts import bin_of
from evalkit.tasks.longbench_v2 import items

_LONGBENCH = re.compile(r"longbench/(?P<task>[^@/]+)|longbench-e/(?P<e>[^@/]+)@(?P<bin>.+)")


def cluster_of(sample_id: str, prediction: Prediction) -> str | None:
    """The unit of an imported sample, without its cell; None where nothing tells it.

    Args:
        sample_id: as it was joined; its last part is the position in the data, where it counts.
        prediction: what was imported under it.
    """
    for pattern, pinned in PINNED.items():
        if re.match(pattern, prediction.task):
            told = pinned(sample_id.rpartition("/")[2], prediction)
            return told or prediction.cluster
    return prediction.cluster


def pinned_records(task: str) -> list[records.Record]:
    """The records of a LongBench cell in their order, where the pinned data are on this machine."""
    path, match = pinned_file("longbench"), _LONGBENCH.fullmatch(task)
    if path is None or match is None:
        return []
    pinned = records.load(path, match["task"] or match["e"], e=bool(match["e"])).records
    return [r for _, r in pinned if not match["bin"] or bin_of(r.length) == match["bin"]]


def pinned_questions() -> tuple[items.Item, ...]:
    """The questions of LongBench v2 in their order, where the pinned data are on this machine."""
    path = pinned_file("longbench_v2")
    return () if path is None else items.index(path).items


def _longbench(position: str, prediction: Prediction) -> str | None:
    """The record at the position of the pinned file, if its answers are those of the sample."""
    pinned = pinned_records(prediction.task)
    if not position.isdecimal() or int(position) >= len(pinned):
        return None
    record = pinned[int(position)]
    return context_label(record.context) if record.answers == prediction.references else None


def _longbench_v2(_: str, prediction: Prediction) -> str | None:
    """The question with the same id in the pinned file."""
    path = pinned_file("longbench_v2")
    return None if path is None else _texts(path).get(str(prediction.meta.get("_id")))


def _squad(position: str, prediction: Prediction) -> str | None:
    """Sample i of qa_1 asks question i; questions on one paragraph are one unit."""
    if not position.isdecimal() or not _has_documents():
        return None
    questions = documents.pool("squad").questions
    if int(position) >= len(questions):
        return None
    question = questions[int(position)]
    return f"document {question.gold[0]}" if question.answers == prediction.references else None


PINNED: dict[str, Callable[[str, Prediction], str | None]] = {
    r"longbench(-e)?/": _longbench,
    r"longbench-v2/": _longbench_v2,
    r"qa_1(@|$)": _squad,
}
"""Who reads the pinned data of a cell."""


@cache
def pinned_file(card: str) -> Path | None:
    """The data of a card where they are on this machine; nothing is fetched."""
    return present(of_card(card, "data"))


@cache
def _has_documents() -> bool:
    return present(LONG_CONTEXT_EVAL) is not None


@cache
def _texts(path: Path) -> dict[str, str]:
    """Units of LongBench v2 by the id of their question."""
    index = items.index(path)
    return {item.id: context_label(index.context(item)) for item in index.items}
