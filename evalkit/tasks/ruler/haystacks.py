"""RULER's haystacks for needles: noise lines, lines of other needles, essays."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from evalkit.data.essays import Prose
from evalkit.tasks.common.fit_length import Grid

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
DEPTHS = tuple(round(100 * i / 39) for i in range(40))
"""Where needles may stand in essays, in percent of the sentences."""


class Haystack(Protocol):
    """Text of any size that needles are put into."""

    grid: Grid

    def size(self, units: int) -> float:
        """A measure that grows as the tokens do."""
        ...

    def insert(
        self, units: int, needles: list[str], source: random.Random
    ) -> tuple[str, list[float]]:
        """The text with the needles in the given order, and their depths in percent."""
        ...


class Lines:
    """Lines, one a unit; every needle stands before a line of its own."""

    def __init__(self, grid: Grid, take: Callable[[int], list[str]]) -> None:
        self.grid = grid
        self._take = take

    def size(self, units: int) -> float:
        """Lines are of about one length."""
        return units

    def insert(
        self, units: int, needles: list[str], source: random.Random
    ) -> tuple[str, list[float]]:
        """Places are drawn without replacement; none is behind the last line."""
        lines = self._take(units)
        places = sorted(source.sample(range(units), len(needles)))
        for place, needle in zip(reversed(places), reversed(needles), strict=True):
            lines.insert(place, needle)
        return "\n".join(lines), [100 * place / units for place in places]


def noise(grid: Grid) -> Lines:
    """The same line again and again."""
    return Lines(grid, lambda units: [NOISE] * units)


def distractors(grid: Grid, lines: Iterator[str]) -> Lines:
    """Lines from a stream; the first n are the same for every size."""
    drawn: list[str] = []

    def take(units: int) -> list[str]:
        drawn.extend(islice(lines, max(0, units - len(drawn))))
        return drawn[:units]

    return Lines(grid, take)


class Essays:
    """Words of one long text from some word on, one word a unit; needles stand between sentences.

    Args:
        grid: sizes in words.
        prose: the text.
        start: words left out before the first; 0 officially.
    """

    def __init__(self, grid: Grid, prose: Prose, start: int = 0) -> None:
        self.grid = grid
        self._prose, self._start = prose, start
        self._before = prose.word_ends[start - 1] + 1 if start else 0

    def size(self, units: int) -> float:
        """Characters of the text."""
        return self._prose.word_ends[self._start + units - 1] - self._before

    def insert(
        self, units: int, needles: list[str], source: random.Random
    ) -> tuple[str, list[float]]:
        """Depths are drawn without replacement from `DEPTHS`."""
        start, end = self._start, self._start + units
        ends = [start, *(at for at in self._prose.sentences(end) if at > start)]
        depths = sorted(source.sample(DEPTHS, len(needles)))
        places = [int((len(ends) - 1) * depth / 100) for depth in depths]
        pieces = []
        for place, needle in zip(places, needles, strict=True):
            pieces += [self._prose.words(start, ends[place]), needle]
            start = ends[place]
        pieces.append(self._prose.words(start, end))
        return " ".join(pieces), [float(depth) for depth in depths]


def own_start(prose: Prose, longest: int, source: random.Random) -> int:
    """A sentence from which on `longest` words are left; the first where the text has no more."""
    room = bisect_right(prose.sentence_ends, len(prose.word_ends) - longest)
    return (0, *prose.sentence_ends[:room])[source.randrange(room + 1)]
