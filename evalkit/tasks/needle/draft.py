"""One needle sample with the haystack size still open."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from evalkit.core.types import Sample
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.needle.haystacks import Haystack

NEEDLE = "The access code for {key} is {value}."
PROMPT = "Somewhere in the text below there are access codes. Remember them.\n\n{context}\n\n"
QUESTION = ("What is the access code for {keys}?", "What are the access codes for {keys}?")
PREFIX = (" The access code for {keys} is", " The access codes for {keys} are")


@dataclass(frozen=True)
class NeedleDraft:
    """What a sample is made of.

    Attributes:
        grid: haystack sizes to choose from.
        haystack: the text.
        asked: keys and values of the question, in the order of their needles.
        others: needles that are not asked, with their depths in percent.
        depth: of the first asked needle, in percent; the others of the question follow at even
            distances up to the end of the text.
        order: positions of the asked needles in the question.
        finish: makes the sample of text, answer prefix, references and meta.
    """

    grid: Grid
    haystack: Haystack
    asked: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str, float], ...]
    depth: float
    order: tuple[int, ...]
    finish: Callable[..., Sample]

    def size(self, units: int) -> float:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        return self.haystack.size(units)

    def build(self, units: int) -> Sample:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        gap = (100 - self.depth) / len(self.asked)
        depths = [self.depth + i * gap for i in range(len(self.asked))]
        placed = [(place(d, units), NEEDLE.format(key=k, value=v)) for k, v, d in self.others]
        places = [place(depth, units) for depth in depths]
        placed += [
            (at, NEEDLE.format(key=key, value=value))
            for at, (key, value) in zip(places, self.asked, strict=True)
        ]
        text = self.haystack.take(units)
        for at, needle in sorted(placed, key=lambda pair: pair[0], reverse=True):
            text.insert(at, needle)
        keys = [self.asked[i][0] for i in self.order]
        many = len(keys) > 1
        question = QUESTION[many].format(keys=listed(keys))
        return self.finish(
            text=PROMPT.format(context=self.haystack.joint.join(text)) + question,
            answer_prefix=PREFIX[many].format(keys=listed(keys)),
            references=tuple(self.asked[i][1] for i in self.order),
            meta={
                "question": question,
                "keys": keys,
                "depth": self.depth,
                "depths": [round(100 * places[i] / units, 1) for i in self.order],
                "units": units,
            },
        )


def place(depth: float, units: int) -> int:
    """The unit before which a needle of that depth stands; `units` means behind the last."""
    return math.floor(depth / 100 * units + 0.5)


def listed(keys: list[str]) -> str:
    """``a``, ``a and b``, ``a, b, and c``."""
    if len(keys) > 2:
        return f"{', '.join(keys[:-1])}, and {keys[-1]}"
    return " and ".join(keys)
