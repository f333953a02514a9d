"""RULER's haystacks for needles: noise lines, lines of other needles, essays."""

from __future__ import annotations

import random
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
    """The first words of one long text, one word a unit; needles stand between sentences."""

    def __init__(self, grid: Grid, prose: Prose) -> None:
        self.grid = grid
        self._prose = prose

    def size(self, units: int) -> float:
        """Characters of the text."""
        return self._prose.word_ends[units - 1]

    def insert(
        self, units: int, needles: list[str], source: random.Random
    ) -> tuple[str, list[float]]:
        """Depths are drawn without replacement from `DEPTHS`."""
        ends = [0, *self._prose.sentences(units)]
        depths = sorted(source.sample(DEPTHS, len(needles)))
        places = [int((len(ends) - 1) * depth / 100) for depth in depths]
        pieces, start = [], 0
        for place, needle in zip(places, needles, strict=True):
            pieces += [self._prose.words(start, ends[place]), needle]
            start = ends[place]
        pieces.append(self._prose.words(start, units))
        return " ".join(pieces), [float(depth) for depth in depths]
