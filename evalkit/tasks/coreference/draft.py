"""One co-reference sample with the number of other rounds still open."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from evalkit.core.types import Sample
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.coreference.text import Request

INTRO = (
    "Below is a conversation between a user and a writer. Some requests occur more than once, each"
    " time with another reply. Read it; a question about it follows.\n\n"
)
ROUND = "User: {request}\nWriter: {reply}\n\n"
QUESTION = (
    "End of the conversation.\n\n"
    'The user asked {count} times: "{request}" Say the reply to the {ordinal} of these requests'
    " again, word for word. Begin with the word {word}, then the reply, and write nothing else."
)
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")

Round = tuple[Request, str]


@dataclass(frozen=True)
class CoreferenceDraft:
    """What a sample is made of.

    Attributes:
        grid: numbers of other rounds to choose from.
        asked: the request of the question.
        replies: its replies, in their order in the conversation.
        occurrence: which of them is asked, 1 the first.
        word: what the answer must begin with.
        others: rounds with other requests, without end.
        places: the generator of the places, by the number of other rounds.
        finish: makes the sample of text, references and meta.
    """

    grid: Grid
    asked: Request
    replies: tuple[str, ...]
    occurrence: int
    word: str
    others: Iterator[Round]
    places: Callable[[int], random.Random]
    finish: Callable[..., Sample]
    _drawn: list[Round] = field(default_factory=list)
    _ends: list[int] = field(default_factory=lambda: [0])

    def size(self, units: int) -> float:
        """Characters of the other rounds."""
        self._draw(units)
        return self._ends[units]

    def build(self, units: int) -> Sample:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        self._draw(units)
        count = len(self.replies)
        places = sorted(self.places(units).choices(range(units + 1), k=count))
        rounds = list(self._drawn[:units])
        for shift, (place, reply) in enumerate(zip(places, self.replies, strict=True)):
            rounds.insert(place + shift, (self.asked, reply))
        text = "".join(ROUND.format(request=r.text, reply=reply) for r, reply in rounds)
        question = QUESTION.format(
            count=count,
            request=self.asked.text,
            ordinal=ordinal(self.occurrence),
            word=self.word,
        )
        place = places[self.occurrence - 1]
        return self.finish(
            text=INTRO + text + question,
            references=(f"{self.word} {self.replies[self.occurrence - 1]}",),
            meta={
                "question": question.rpartition("\n")[2],
                "occurrence": self.occurrence,
                "equal": count,
                "depth": round(100 * place / units, 1) if units else 0.0,
                "rounds": len(rounds),
                "units": units,
            },
        )

    def _draw(self, count: int) -> None:
        for request, reply in islice(self.others, max(0, count - len(self._drawn))):
            self._drawn.append((request, reply))
            size = len(ROUND.format(request=request.text, reply=reply))
            self._ends.append(self._ends[-1] + size)


def ordinal(number: int) -> str:
    """``first`` ... ``eighth``, then ``9th``, ``11th``, ``21st`` ..."""
    if number <= len(ORDINALS):
        return ORDINALS[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 < number % 100 < 14 else ending}"
