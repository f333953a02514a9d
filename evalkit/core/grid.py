"""A table as plain cells; terminal, Markdown and HTML only dress it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        title: one line above it.
        head: column names.
        rows: cells, as many as columns.
        right: columns that are aligned to the right.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


class Share(str):
    """Text about scores in [0, 1], and the same in points of 100, the unit of the page.

    Attributes:
        points: the text in points.
    """

    __slots__ = ("points",)
    points: str

    def __new__(cls, text: str, points: str) -> Share:
        """Both texts."""
        share = super().__new__(cls, text)
        share.points = points
        return share


def number(value: float | None) -> str:
    """0.957 (95.7 points), or a dash."""
    return "–" if value is None else Share(f"{value:.3f}", f"{100 * value:.1f}")


def change(value: float) -> str:
    """A signed difference: -0.017 (−1.7 points)."""
    text = f"{100 * value:+.1f}".replace("-", "−")
    return Share(f"{value:+.3f}", "0.0" if text in ("+0.0", "−0.0") else text)


def between(low: float, high: float) -> str:
    """An interval of a difference: [-0.048, +0.004]."""
    ends = (change(low), change(high))
    return joined(("[", ends[0], ", ", ends[1], "]"), "")


def joined(parts: Iterable[str], space: str = " ") -> str:
    """Texts as one, those in points among them."""
    parts = list(parts)
    return Share(space.join(parts), space.join(map(in_points, parts)))


def in_points(text: str) -> str:
    """As the page shows it."""
    return text.points if isinstance(text, Share) else text
