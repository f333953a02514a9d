"""How plots look: colours that colour-blind readers tell apart, and two ways to save a figure.

Colours are those of Okabe and Ito (2008), with a marker and a line style of their own each, so that
grey print keeps them apart too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

INK, FAINT = "#010203", "#030201"
"""Stand for the colours of text and of grid lines until the page sets its own."""

_ID = re.compile(r'( id="|xlink:href="#|url\(#)')


def new_figure(width: float, height: float) -> Figure:
    """A figure in inches that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def page_colours() -> Iterator[None]:
    """Figures made inside take their text and line colours from the page they are put into."""
    import matplotlib as mpl

    keys = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor")
    settings = dict.fromkeys((*keys, "axes.titlecolor"), INK) | {
        "grid.color": FAINT,
        "axes.facecolor": "none",
        "legend.facecolor": "none",
        "legend.edgecolor": "none",
        "svg.fonttype": "none",
        "svg.hashsalt": "evalkit",
    }
    with mpl.rc_context(settings):
        yield


def inline_svg(figure: Figure, name: str, alt: str) -> str:
    """A figure made within `page_colours` as an <svg> element.

    Args:
        figure: drawn, not yet saved.
        name: prefix of its ids, unique on the page.
        alt: what it shows, for readers who cannot see it; escaped here.
    """
    from html import escape

    buffer = io.StringIO()
    with page_colours():
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", facecolor="none", metadata=metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor").replace(FAINT, "var(--grid)")
    text = _ID.sub(rf"\g<1>{name}-", text).replace("xlink:href", "href")
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
    text = re.sub(r"<style.*?</style>", "", text, count=1, flags=re.DOTALL)  # it says * for all
    text = re.sub(r'font(-family)?: [^;"]*', _font, text)
    head = f'<svg role="img" aria-label="{escape(alt, quote=True)}"'
    return text.replace("<svg", head, 1)


def plain(text: str) -> str:
    """A name as a label: a dollar sign begins no formula."""
    return text.replace("$", r"\$")


def _font(match: re.Match[str]) -> str:
    """Sizes stay, families are the page's."""
    size = re.search(r"[\d.]+px", match[0])
    return f"font-size: {size[0]}" if size else "font-style: normal"
