"""What is fixed about every task of LongBench, read from ``tasks.toml`` and the data card."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal

from evalkit.core.recipe import Strict, parse
from evalkit.data import cards

CARD = "longbench"
BINS = ("0-4k", "4-8k", "8k+")
"""Length bins of LongBench-E."""


class Facts(Strict):
    """One task.

    Attributes:
        category: of the leaderboard.
        language: ``en``, ``zh`` or ``code``.
        metric: name in `evalkit.scorers`.
        chat: False: never wrapped into a chat template.
        first_line: only the first line of an answer is scored.
        stop: strings that end an answer.
        min_new_tokens: an answer has so many tokens at least, whatever the model prefers.
        span: an answer is usually a text that stands in the context.
    """

    category: str
    language: Literal["en", "zh", "code"]
    metric: str
    chat: bool = True
    first_line: bool = False
    stop: tuple[str, ...] = ()
    min_new_tokens: int = 0
    span: bool = False

    @property
    def has_classes(self) -> bool:
        """Whether records list the classes to choose from."""
        return self.metric == "classification"


@cache
def tasks() -> dict[str, Facts]:
    """All tasks by name, in the official order."""
    return {
        name: parse(entry, Facts, f"tasks.toml [{name}]") for name, entry in toml("tasks").items()
    }


def toml(name: str) -> dict[str, Any]:
    """One of the tables beside this module."""
    file = resources.files(__package__) / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def bin_of(length: int) -> str:
    """The bin of LongBench-E that a record's ``length`` (words or characters) falls into."""
    return BINS[(length >= 4000) + (length >= 8000)]


def official_count(task: str, bin_: str | None = None) -> int:
    """Samples of a task, or of one bin of it in LongBench-E, as the data card says."""
    splits = cards.load(CARD).splits
    count = splits["test" if bin_ is None else "test_e"][task]
    if isinstance(count, int):
        return count
    return count[BINS.index(bin_)] if bin_ is not None else sum(count)


def in_e(task: str) -> bool:
    """Whether LongBench-E has the task."""
    return task in cards.load(CARD).splits["test_e"]


def scoring_meta(task: str, all_classes: Sequence[str] | None = None) -> dict[str, Any]:
    """What the task's metric needs to know of a sample, for records made elsewhere too.

    Args:
        task: a name in `tasks`.
        all_classes: the record's classes, for the classification tasks.
    """
    facts = tasks()[task]
    meta: dict[str, Any] = {}
    if facts.first_line:
        meta["first_line"] = True
    if facts.has_classes:
        meta["all_classes"] = None if all_classes is None else list(all_classes)
    return meta
