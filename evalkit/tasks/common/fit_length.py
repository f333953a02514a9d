"""The largest haystack that fits: estimated by arithmetic, checked by an exact count."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample

MARGIN = 0.1
"""A step is taken to be over the limit unseen when it is so by this share of its own size."""

TURNS = 64
"""Prompts counted at most for one sample; two are the rule."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Allowed haystack sizes in units: ``first``, ``first + step`` ..., and ``last`` at most."""

    first: int
    step: int
    last: int | None = None

    def at(self, k: int) -> int:
        """The k-th size (0-based)."""
        units = self.first + k * self.step
        return units if self.last is None else min(units, self.last)

    @property
    def count(self) -> int:
        """How many sizes there are; 2**40 stands for no end."""
        if self.last is None:
            return 2**40
        return 1 + max(0, math.ceil((self.last - self.first) / self.step))


class Draft(Protocol):
    """A sample whose haystack size is still open."""

    @property
    def grid(self) -> Grid:
        """The sizes to choose from."""
        ...

    def size(self, units: int) -> float:
        """A cheap measure of a haystack of so many units that grows as its tokens do."""
        ...

    def build(self, units: int) -> Sample:
        """The sample with a haystack of so many units."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """The estimate ``tokens = base + slope * size``, measured once per cell and tokenizer."""

    base: float
    slope: float


Count = Callable[[Sample], int]
"""The exact length of a rendered sample, in the unit of the limit."""


class Fitter:
    """Makes the samples of one cell, each as long as fits.

    The estimate is measured once per renderer, on a sample of index -1 that is never used
    itself: no sample depends on which others were made before.

    Args:
        name: of the cell; every error message names it.
        limit: most tokens (or characters) of a prompt.
        draft: makes the draft of an index.
        unit: of the limit. ``tokens`` counts the whole prompt as rendered, ``characters`` the
            text and the answer prefix.
    """

    def __init__(
        self, name: str, limit: int, draft: Callable[[int, Renderer], Draft], unit: str = "tokens"
    ) -> None:
        self._name, self._limit, self._draft, self._unit = name, limit, draft, unit
        self._lines: dict[int, tuple[Renderer, Line]] = {}

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index`; raises EvalkitError as `fit` and the draft do."""

        def count(sample: Sample) -> int:
            if self._unit == "characters":
                return len(sample.text) + len(sample.answer_prefix)
            return renderer.count(sample)

        try:
            kept = self._lines.get(id(renderer))
            if kept is None:
                kept = (renderer, calibrate(self._draft(-1, renderer), count, self._limit))
                self._lines[id(renderer)] = kept
            draft = self._draft(index, renderer)
            return fit(draft, count, self._limit, kept[1], name=self._name, unit=self._unit)
        except EvalkitError as error:
            if str(error).startswith(f"{self._name}:"):
                raise
            raise EvalkitError(f"{self._name}: {error}") from None


def calibrate(draft: Draft, count: Count, limit: int) -> Line:
    """Measure short prompts and a nearly full one.

    Args:
        draft: a sample of the same cell that is never used itself, so that the estimate does
            not depend on which samples were made before.
        count: the exact count.
        limit: what the prompts are to fit into.

    Raises:
        EvalkitError: the count does not grow with the haystack.
    """
    grid = draft.grid
    start, used = draft.size(grid.at(0)), count(draft.build(grid.at(0)))
    if used > limit or grid.count == 1:
        return Line(used - start, 1.0)

    def through(k: int) -> Line:
        """The line through the smallest size and the k-th."""
        units = grid.at(k)
        slope = (count(draft.build(units)) - used) / (draft.size(units) - start)
        return Line(used - slope * start, slope)

    line = through(1)
    if line.slope <= 0:
        line = through(4)
    if line.slope <= 0:
        raise EvalkitError("the prompt does not grow with its haystack")
    k = _reach(draft, line, limit)
    nearly_full = through(k) if k > 1 else line
    return nearly_full if nearly_full.slope > 0 else line


def fit(
    draft: Draft, count: Count, limit: int, line: Line, *, name: str, unit: str = "tokens"
) -> Sample:
    """The sample with the largest haystack of its grid whose exact count is at most `limit`.

    The count of the next larger size is not taken where the estimate puts it beyond doubt
    (`MARGIN`) over the limit, so that a long prompt is mostly rendered once.

    Raises:
        EvalkitError: even the smallest haystack does not fit, or the count does not grow with
            the text; the message starts with `name`.
    """
    grid = draft.grid
    best: Sample | None = None
    shortest = 0
    low, high = -1, grid.count  # the largest size known to fit, the smallest known not to
    k = _reach(draft, line, limit)
    for turn in range(TURNS):
        if high - low <= 1:
            break
        if turn > 8:  # the estimate does not help: halve what is left, or take longer steps
            k = (low + high) // 2 if high < grid.count else low + 2 ** (turn - 8)
        k = min(max(k, low + 1), high - 1)
        sample = draft.build(grid.at(k))
        used = count(sample)
        size = draft.size(grid.at(k))
        if used > limit:
            high, shortest = k, used
        else:
            low, best = k, sample
            if k + 1 < high:
                step = line.slope * (draft.size(grid.at(k + 1)) - size)
                if used + step > limit + max(8.0, MARGIN * step):
                    break
        k = _reach(draft, Line(used - line.slope * size, line.slope), limit)
    else:
        raise EvalkitError(f"{name}: the number of {unit} does not grow with the text")
    if best is None:
        raise EvalkitError(
            f"{name}: too short for this task: the smallest prompt takes {shortest} {unit}, "
            f"and {max(0, limit)} are left for it"
        )
    return best


def _reach(draft: Draft, line: Line, limit: float) -> int:
    """The largest k whose estimate is within the limit, 0 at least."""
    grid = draft.grid

    def estimate(k: int) -> float:
        return line.base + line.slope * draft.size(grid.at(k))

    top = 1
    while top < grid.count - 1 and estimate(top) <= limit:
        top = min(2 * top, grid.count - 1)
    return max(0, bisect_right(range(top + 1), limit, key=estimate) - 1)
