"""Needle in a haystack, RULER's eight forms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.data.essays import essays
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.common.word_streams import listed
from evalkit.tasks.ruler.cell import SHORT, Cell
from evalkit.tasks.ruler.haystacks import DEPTHS, Essays, Haystack, distractors, noise, own_start
from evalkit.tasks.ruler.templates import Spec

NEEDLE = "One of the special magic {kind} for {key} is: {value}."


class Niah:
    """A sample of a ``niah`` task with the haystack size still open."""

    def __init__(self, cell: Cell, index: int, _renderer: Renderer) -> None:
        args = cell.spec.args
        self._cell, self._index = cell, index
        self._kind = str(args["type_needle_v"])
        asked = int(args["num_needle_q"])
        count = cell.overrides.num_keys or num_keys(cell.spec)
        if count < asked:
            raise EvalkitError(f"{cell.name}: num_keys is {count}, but {asked} keys are asked")
        keys = cell.stream(str(args["type_needle_k"]), cell.rng(index, "keys"))
        values = cell.stream(self._kind, cell.rng(index, "values"))
        per_key = int(args["num_needle_v"])
        self._values = {key: list(islice(values, per_key)) for key in islice(keys, count)}
        self._asked = cell.rng(index, "asked").sample(list(self._values), asked)
        self._needles = [(key, value) for key, of_key in self._values.items() for value in of_key]
        cell.rng(index, "order").shuffle(self._needles)
        self._line = NEEDLE.format(kind=self._kind, key="{}", value="{}").format
        others = map(self._line, keys, values)
        self._haystack = _haystack(cell, index, len(self._needles), others)

    @property
    def grid(self) -> Grid:
        """Lines of noise or of needles, or words of the essays."""
        return self._haystack.grid

    def size(self, units: int) -> float:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        return self._haystack.size(units)

    def build(self, units: int) -> Sample:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        lines = [self._line(key, value) for key, value in self._needles]
        source = self._cell.rng(self._index, f"places/{units}")
        context, depths = self._haystack.insert(units, lines, source)
        asked = [(key, value) for key in self._asked for value in self._values[key]]
        references = tuple(value for _, value in asked)
        where = dict(zip(self._needles, depths, strict=True))
        asked_depths = [round(where[needle], 1) for needle in asked]
        template, prefix = self._cell.spec.template, self._cell.spec.answer_prefix
        fields = {"type_needle_v": self._kind, "query": listed(self._asked)}
        if len(references) == 1:
            template, prefix = singular(template), singular(prefix)
            fields["type_needle_v"] = self._kind.removesuffix("s")
        return self._cell.sample(
            self._index,
            text=template.format(context=context, **fields),
            answer_prefix=prefix.format(**fields),
            references=references,
            meta={
                "question": template.rpartition("{context}")[2].strip().format(**fields),
                "keys": self._asked,
                "depth": asked_depths[0],
                "depths": asked_depths,
                "units": units,
            },
        )


def num_keys(spec: Spec) -> int:
    """The official number of keys put into the haystack: those that are asked at least."""
    return max(int(spec.args["num_needle_k"]), int(spec.args["num_needle_q"]))


def singular(template: str) -> str:
    """RULER's wording when a single value is asked; applied to the template, never to data."""
    for plural, one in (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer")):
        template = template.replace(plural, one)
    return template


def _haystack(cell: Cell, index: int, needles: int, others: Iterator[str]) -> Haystack:
    """The haystack of the task: at least one line for every needle, 40 needles in essays."""
    kind = cell.overrides.haystack or cell.spec.args["type_haystack"]
    if kind == "essay":
        prose = essays()
        if needles > len(DEPTHS):
            raise EvalkitError(f"{cell.name}: {needles} needles, but {len(DEPTHS)} depths")
        start = 0
        if cell.overrides.own_essays:  # a word takes a token at least
            start = own_start(prose, cell.length, cell.rng(index, "essay start"))
        return Essays(cell.grid(500, last=len(prose.word_ends) - start), prose, start)
    grid = cell.grid(5 if cell.length < SHORT else 25, least=needles)
    if kind == "repeat":
        return noise(grid)
    if kind != "needle":
        raise EvalkitError(f"{cell.name}: unknown haystack {kind}")
    if fixed := cell.overrides.distractors:
        if fixed < needles:
            raise EvalkitError(f"{cell.name}: {fixed} distractors hold no {needles} needles")
        grid = Grid(fixed, 1, last=fixed)
    return distractors(grid, others)
