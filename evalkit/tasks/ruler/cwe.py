"""Common words extraction: ten words are repeated more often than all others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from evalkit.core.types import Renderer, Sample
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.common.word_streams import wordlist
from evalkit.tasks.ruler.cell import SHORT, Cell


class CommonWords:
    """A sample of ``cwe`` with the number of distinct words still open."""

    def __init__(self, cell: Cell, index: int, renderer: Renderer) -> None:
        self._cell, self._index = cell, index
        args = cell.spec.args
        self._common = int(args["num_cw"])
        self._repeats = (int(args["freq_cw"]), int(args["freq_ucw"]))
        example = (40, 10, 3)
        if cell.length < SHORT:
            self._repeats, example = (6, 1), (20, 3, 1)
        count, often, seldom = example
        words = _vocabulary()
        shown = cell.rng(index, "example words").sample(words, count)
        self._example = self._numbered("example order", shown, often, seldom)
        self._example_answer = _enumerate(shown[: self._common])
        self._words = cell.rng(index, "words").sample(words, len(words))
        common, others = self._words[: self._common], self._words[self._common :]
        encode = renderer.tokenizer.encode
        self._common_tokens = sum(
            len(encode(f" 1000. {word}", add_special_tokens=False)) for word in common
        )
        self._letters = list(accumulate((len(word) + 10 for word in others), initial=0))
        self.grid: Grid = cell.grid(10, least=self._common, last=len(words))

    def size(self, units: int) -> float:
        """Tokens of the common words, and about as many per character of the others."""
        often, seldom = self._repeats
        return often * self._common_tokens + seldom * self._letters[units - self._common] / 4

    def build(self, units: int) -> Sample:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        spec = self._cell.spec
        context = self._numbered(f"order/{units}", self._words[:units], *self._repeats)
        solved = spec.template.format(context=self._example, query="") + spec.answer_prefix
        task = spec.template.format(context=context, query="")
        return self._cell.sample(
            self._index,
            text=f"{solved}{self._example_answer}\n{task}",
            answer_prefix=spec.answer_prefix,
            references=tuple(self._words[: self._common]),
            meta={
                "question": spec.template.rpartition("{context}")[2].strip(),
                "units": units,
            },
        )

    def _numbered(self, purpose: str, words: Sequence[str], often: int, seldom: int) -> str:
        """The list of the common words and the others, each as often as it is to occur."""
        common, others = words[: self._common], words[self._common :]
        entries = [*common] * often + [*others] * seldom
        self._cell.rng(self._index, purpose).shuffle(entries)
        return _enumerate(entries)


def _enumerate(words: Sequence[str]) -> str:
    return " ".join(f"{i}. {word}" for i, word in enumerate(words, start=1))


@cache
def _vocabulary() -> tuple[str, ...]:
    """Distinct nouns, adjectives and verbs of wonderwords, in alphabetical order."""
    return tuple(sorted({word for n in ("noun", "adjective", "verb") for word in wordlist(n)}))
