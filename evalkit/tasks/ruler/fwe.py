"""Frequent words extraction: coded words whose frequencies follow a zeta distribution."""

from __future__ import annotations

import math
from itertools import islice, takewhile
from string import ascii_lowercase

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.common.rng import permutation
from evalkit.tasks.ruler.cell import Cell

LETTERS = 6
ASKED = 3


class FrequentWords:
    """A sample of ``fwe`` with the number of words still open."""

    def __init__(self, cell: Cell, index: int, renderer: Renderer) -> None:
        from scipy.special import zeta

        self._cell, self._index = cell, index
        alpha = float(cell.spec.args["alpha"])
        ranks = cell.length // 50
        if ranks <= ASKED:
            raise EvalkitError(
                f"{cell.name}: too short for this task: a vocabulary of {ranks} coded words, "
                f"and {ASKED} beside the dots are asked"
            )
        every = float(zeta(alpha))
        self._shares = [rank**-alpha / every for rank in range(1, ranks + 1)]
        drawn = permutation(26**LETTERS, cell.rng(index, "vocabulary"))
        self._words, self._more = ["..."], map(_coded, drawn)
        # Words of later ranks do not occur: their share of `length` words is less than one word.
        seen = sum(cell.length * share >= 1 for share in self._shares)
        encode = renderer.tokenizer.encode
        self._tokens = [
            len(encode(f" {word}", add_special_tokens=False)) for word in self._first(seen)
        ]
        step = cell.overrides.step or max(1, cell.length // 32)
        self.grid: Grid = Grid(self._smallest(cell.length // LETTERS % step, step), step)

    def size(self, units: int) -> float:
        """Tokens, each word by itself."""
        counted = zip(self._shares, self._tokens, strict=False)
        return sum(int(units * share) * tokens for share, tokens in counted)

    def build(self, units: int) -> Sample:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        spec = self._cell.spec
        counts = list(takewhile(bool, (int(units * share) for share in self._shares)))
        entries = list[str]()
        for word, n in zip(self._first(len(counts)), counts, strict=True):
            entries += [word] * n
        self._cell.rng(self._index, f"order/{units}").shuffle(entries)
        return self._cell.sample(
            self._index,
            text=spec.template.format(context=" ".join(entries), query=""),
            answer_prefix=spec.answer_prefix,
            references=tuple(self._first(ASKED + 1)[1:]),
            meta={
                "question": spec.template.rpartition("{context}")[2].strip(),
                "units": units,
            },
        )

    def _first(self, count: int) -> list[str]:
        """The words of the first ranks, drawn when first asked for: most ranks never occur."""
        self._words += islice(self._more, max(0, count - len(self._words)))
        return self._words[:count]

    def _smallest(self, start: int, step: int) -> int:
        """The first size of the grid from which on the third word beats the fourth."""
        vague = [n for n in range(1, 1000) if not self._unique(n)]
        return start + step * max(0, math.ceil((max(vague, default=0) + 1 - start) / step))

    def _unique(self, units: int) -> bool:
        counts = [int(units * share) for share in self._shares[ASKED : ASKED + 2]]
        return counts[0] > (counts[1] if len(counts) > 1 else 0)


def _coded(number: int) -> str:
    return "".join(ascii_lowercase[number // 26**i % 26] for i in range(LETTERS))
