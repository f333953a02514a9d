"""What a section of a report is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalkit.core.grid import Grid

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from evalkit.analysis.compare import RunComparison
    from evalkit.run.store import RunStore


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure, drawn for the page and once more for the files of plots.

    Attributes:
        name: of the files; unique in a report.
        alt: what it shows, for readers who cannot see it.
        draw: the figure; None where there is nothing to draw.
        caption: below it on the page.
        on_page: a chart that the page shows in the place of the figure, or None where it has none;
            by default it shows the figure.
    """

    name: str
    alt: str
    draw: Callable[[], Figure | None]
    caption: str = ""
    on_page: Callable[[], Markup | None] | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page; without a figure and a table it is left out.

    Attributes:
        title: its heading.
        lead: one paragraph before figures and tables; may be empty.
        drawings: its figures.
        tables: its tables.
    """

    title: str
    lead: str = ""
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Grid, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table for the terminal and for Markdown, with lines of notes below it."""

    grid: Grid
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of a report.

    Attributes:
        section: what the page shows and plots are written of; None where the run has nothing.
        text: what the terminal and report.md show.
    """

    section: Callable[[RunStore, RunComparison], Section | None]
    text: Callable[[RunComparison], Sequence[Table]] = lambda _: ()
