"""Haystacks of the needle task: a list of units of any length, and what stands between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

FILLER = (
    "The river runs past the mill.",
    "A cart waits by the gate.",
    "The baker opens before dawn.",
    "Rain falls on the old roof.",
    "The children walk home together.",
    "A lamp burns in the window.",
    "The market closes at noon.",
    "Birds rest on the long wall.",
    "The road bends toward the hill.",
    "Someone hums a quiet tune.",
)

LONGEST = 60
"""Words of a unit at most: text without full stops is cut."""


@dataclass
class Haystack:
    """Units from a stream; the first n are the same for every size.

    Attributes:
        joint: text between two units.
        units: the stream.
        even: the units are of about one length.
    """

    joint: str
    units: Iterator[str]
    even: bool = False

    def __post_init__(self) -> None:
        self._drawn: list[str] = []
        self._ends: list[int] = [0]

    def take(self, count: int) -> list[str]:
        """The first units, as a list of one's own."""
        for unit in islice(self.units, max(0, count - len(self._drawn))):
            self._drawn.append(unit)
            self._ends.append(self._ends[-1] + len(unit) + len(self.joint))
        return self._drawn[:count]

    def size(self, count: int) -> int:
        """Characters of the first units with their joints; for even units, their number."""
        if self.even:
            return count
        self.take(count)
        return self._ends[count]


def filler(source: random.Random) -> Haystack:
    """The ten sentences, all of them in a new order each time round."""

    def rounds() -> Iterator[str]:
        while True:
            yield from source.sample(FILLER, len(FILLER))

    return Haystack(" ", rounds())


def needles(lines: Iterator[str]) -> Haystack:
    """Sentences like the needle about other keys, one a line."""
    return Haystack("\n", lines, even=True)


def prose(sentences: Sequence[str], source: random.Random) -> Haystack:
    """Sentences of a text from a random one on, from the start again behind the last."""
    start = source.randrange(len(sentences))

    def rounds() -> Iterator[str]:
        yield from sentences[start:]
        while True:
            yield from sentences

    return Haystack(" ", rounds())


def cut(text: str, split: Callable[[str], list[str]]) -> tuple[str, ...]:
    """Units of a text: sentences with single spaces, at most `LONGEST` words each."""
    units = []
    for sentence in split(" ".join(text.split())):
        words = sentence.split(" ")
        units += [" ".join(words[i : i + LONGEST]) for i in range(0, len(words), LONGEST)]
    return tuple(units)
