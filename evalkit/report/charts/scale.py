"""An axis of differences or scores in points."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

WIDEST = 8.0
"""Margins that an axis of differences reaches to either side; what lies beyond is an arrow."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear axis.

    Attributes:
        low: its left (lower) end.
        high: its right (upper) end.
    """

    low: float
    high: float

    def at(self, value: float) -> float:
        """Position of a value in percent from the left; beyond an end, that end."""
        share = (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)

    def ticks(self, most: int = 7) -> list[float]:
        """Round numbers within the axis, 1, 2 or 5 times a power of ten apart."""
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= least)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(k * step, 10) for k in range(first, last + 1)]


def of_differences(values: Iterable[float], margin: float) -> Scale:
    """An axis on which zero and the margin are told apart.

    Args:
        values: ends of intervals, in points.
        margin: in points.
    """
    reach = WIDEST * max(margin, 0.5)
    values = [*values, -1.6 * max(margin, 0.5), 1.6 * max(margin, 0.5)]
    low, high = max(min(values), -reach), min(max(values), reach)
    room = 0.04 * (high - low)
    return Scale(low - room, high + room)


def label(value: float) -> str:
    """A tick: a true minus, a sign on both sides of zero."""
    return "0" if value == 0 else f"{value:+g}".replace("-", "−")
