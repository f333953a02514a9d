"""What a metric is: two named ways to judge one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, cast

T = TypeVar("T")

MODES = ("official", "strict")
"""``official`` equals the benchmark's own script, quirks included; ``strict`` is what the metric
should have been. The differences are in the data set's card."""

EDIT_DISTANCES = ("difflib", "levenshtein")
"""Backends of the code metric; the official script takes whichever happens to be installed."""


class Options(NamedTuple):
    """What a metric may need besides answer and references.

    Attributes:
        edit_distance: one of `EDIT_DISTANCES`.
        meta: the sample's meta data, such as ``all_classes`` and ``first_line``.
    """

    edit_distance: str = "difflib"
    meta: Mapping[str, Any] = MappingProxyType({})


Scorer = Callable[[str, tuple[str, ...], Options], float]


class Scored(Protocol):
    """A metric with its mode: answer, references and meta data to a number in [0, 1]."""

    def __call__(
        self, prediction: str, references: tuple[str, ...], meta: Mapping[str, Any] | None = None
    ) -> float:
        """The score."""
        ...


Plain = Callable[[str, tuple[str, ...]], float]
Flags = Callable[[str, str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric in both modes.

    Attributes:
        official: as the official script.
        strict: as it should have been.
        zero_without_references: an empty list of references scores 0 in official mode (as the
            official script of LongBench does) instead of being refused.
        hub: name of the metric on model cards of the hub; None: ours.
        flags: what a report counts of an answer besides its score, from answer and mode.
        chance: score that a random answer of the right form gets.
    """

    official: Scorer
    strict: Scorer
    zero_without_references: bool = False
    hub: str | None = None
    flags: Flags = lambda *_: ()
    chance: float = 0.0


def plain(
    official: Plain,
    strict: Plain | None = None,
    *,
    hub: str | None = None,
    flags: Flags = lambda *_: (),
    chance: float = 0.0,
) -> Metric:
    """A metric that looks at answer and references only; without `strict` both modes agree."""

    def lift(function: Plain) -> Scorer:
        return lambda prediction, references, _options: function(prediction, references)

    return Metric(lift(official), lift(strict or official), hub=hub, flags=flags, chance=chance)


def best(function: Callable[[T, str], float], prepare: Callable[[str], T] | None = None) -> Scorer:
    """The best score over all references; the answer is prepared once for all of them."""

    def scorer(prediction: str, references: tuple[str, ...], _options: Options) -> float:
        answer = cast(T, prediction) if prepare is None else prepare(prediction)
        highest = 0.0
        for reference in references:
            highest = max(highest, function(answer, reference))
        return highest

    return scorer
