"""A table as plain cells; terminal, Markdown and HTML only dress it."""

from __future__ import annotations

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


def number(value: float | None) -> str:
    """0.957, or a dash."""
    return "–" if value is None else f"{value:.3f}"
