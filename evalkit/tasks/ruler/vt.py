"""Variable tracking: a chain of assignments hidden in noise, after one solved example."""

from __future__ import annotations

import random
from itertools import pairwise
from string import ascii_uppercase

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.common.rng import permutation
from evalkit.tasks.ruler.cell import Cell
from evalkit.tasks.ruler.haystacks import NOISE

EXAMPLE_TOKENS = 500
"""The solved example and its answer budget take no more."""

EXAMPLE_HOPS = 10
"""Most hops of the chain in the solved example."""


class VariableTracking:
    """A sample of ``vt`` with the number of noise lines still open."""

    def __init__(self, cell: Cell, index: int, renderer: Renderer) -> None:
        self._cell, self._index = cell, index
        self._chains = int(cell.spec.args["num_chains"])
        self._hops = int(cell.spec.args["num_hops"])
        self.grid: Grid = cell.grid(10, least=self._hops + 2)
        source = cell.rng(index, "values")
        values = source.sample(range(10_000, 100_000), self._chains + 1)
        self._names = _names(5, self._chains * (self._hops + 1), cell.rng(index, "names"))
        self._values = values[:-1]
        self._example = self._fit_example(values[-1], renderer)

    def size(self, units: int) -> float:
        """Noise lines are all of one length."""
        return units

    def build(self, units: int) -> Sample:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        hops = self._hops
        chains = [
            _chain(self._names[i * (hops + 1) :][: hops + 1], value)
            for i, value in enumerate(self._values)
        ]
        source = self._cell.rng(self._index, f"places/{units}")
        fields = {"query": str(self._values[0]), "num_v": hops + 1}
        template = self._cell.spec.template
        task = template.format(context=_context(units, chains, source), **fields)
        return self._cell.sample(
            self._index,
            # The official script joins the example to the task with this white space.
            text=f" {self._example}\n\n\n\n{task}",
            answer_prefix=self._cell.spec.answer_prefix.format(**fields),
            references=tuple(self._names[: hops + 1]),
            meta={
                "question": template.rpartition("{context}")[2].strip().format(**fields),
                "units": units,
            },
        )

    def _fit_example(self, value: int, renderer: Renderer) -> str:
        """The solved example with as many noise lines as fit, in steps of 5."""
        cell, hops = self._cell, min(EXAMPLE_HOPS, self._hops)
        names = _names(3, hops + 1, cell.rng(self._index, "example names"))
        fields = {"query": str(value), "num_v": hops + 1}
        limit = EXAMPLE_TOKENS - cell.spec.tokens_to_generate
        example, tokens = "", 0
        for units in range(5, EXAMPLE_TOKENS, 5):
            source = cell.rng(self._index, f"example places/{units}")
            context = _context(units, [_chain(names, value)], source)
            whole = cell.spec.template + cell.spec.answer_prefix
            text = f"{whole.format(context=context, **fields)} {' '.join(names)}"
            tokens = len(renderer.tokenizer.encode(text, add_special_tokens=False))
            if tokens > limit:
                break
            example = text
        if not example:
            raise EvalkitError(
                f"{cell.name}: the solved example takes {tokens} tokens, more than {limit}"
            )
        return example


def _names(letters: int, count: int, source: random.Random) -> list[str]:
    """Distinct variable names of capital letters, ``VAR`` left out."""
    names: list[str] = []
    for number in permutation(26**letters, source):
        name = "".join(ascii_uppercase[number // 26**i % 26] for i in range(letters))
        if name != "VAR":
            names.append(name)
        if len(names) == count:
            break
    return names


def _chain(names: list[str], value: int) -> list[str]:
    """One variable gets the value, each of the others its predecessor; spaces as official."""
    rest = [f"VAR {name} = VAR {before} " for before, name in pairwise(names)]
    return [f"VAR {names[0]} = {value}", *rest]


def _context(lines: int, chains: list[list[str]], source: random.Random) -> str:
    """Noise with every chain in order at random places; few lines are taken apart first."""
    sentences = [f"{NOISE}\n"] * lines
    if lines <= len(chains[0]):
        parts = [part for line in sentences for part in line.split(".")]
        sentences = [f"{part}." if part.strip() else part for part in parts]
    for chain in chains:
        places = sorted(source.sample(range(len(sentences)), len(chain)))
        for shift, (place, assignment) in enumerate(zip(places, chain, strict=True)):
            sentences.insert(place + shift, assignment)
    return " ".join(sentences).replace(". \n", ".\n")
