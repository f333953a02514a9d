"""Names beside points: each where it covers least of what is there already."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RADII = (6, 13, 21, 30, 40, 52, 66, 82, 100)  # points from the mark to the text
DIRECTIONS = 16
LINE_FROM = 9  # from here on a line leads back to the mark
MARK = 4


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    def distance(self, x: float, y: float) -> float:
        """From a point to the nearest edge; 0 inside."""
        return math.hypot(
            max(self.left - x, 0.0, x - self.right), max(self.bottom - y, 0.0, y - self.top)
        )


def label_points(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[str, float, float]],
    lines: Iterable[tuple[tuple[float, float], tuple[float, float]]] = (),
) -> None:
    """Name points inside the axes, none over another where there is room.

    Args:
        figure: that is laid out here.
        axes: in it, their limits final.
        points: (text, x, y) in data coordinates.
        lines: ends (x, y) of upright and level lines to keep off.
    """
    from matplotlib import rcParams
    from matplotlib.text import Text

    figure.draw_without_rendering()
    pixel = figure.dpi / 72
    places = axes.transData.transform([(x, y) for _, x, y in points])
    taken = [_around(x, y, 2 * MARK * pixel, 2 * MARK * pixel) for x, y in places]
    for ends in lines:
        (x0, y0), (x1, y1) = axes.transData.transform(ends)
        width, height = abs(x1 - x0) + 2 * pixel, abs(y1 - y0) + 2 * pixel
        taken.append(_around((x0 + x1) / 2, (y0 + y1) / 2, width, height))
    inside = Box(*axes.get_window_extent().extents)
    colour = rcParams["text.color"]
    for (text, x, y), (px, py) in zip(points, places, strict=True):
        note = axes.annotate(
            text,
            (x, y),
            (0, 0),
            textcoords="offset points",
            fontsize="x-small",
            ha="center",
            va="center",
            bbox={"pad": 1, "fc": "none", "ec": "none"},
            arrowprops={"arrowstyle": "-", "lw": 0.5, "color": colour, "shrinkB": MARK},
        )
        note.set_in_layout(False)
        size = Text.get_window_extent(note)  # an annotation's own holds its line, too
        width, height = size.width + 6 * pixel, size.height + 2 * pixel
        box, offset = _best(px, py, width, height, taken, inside, pixel)
        note.set_position(offset)
        if note.arrow_patch is not None and box.distance(px, py) < LINE_FROM * pixel:
            note.arrow_patch.set_visible(False)
        taken.append(box)


def _around(x: float, y: float, width: float, height: float) -> Box:
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _best(
    x: float, y: float, width: float, height: float, taken: Sequence[Box], inside: Box, pixel: float
) -> tuple[Box, tuple[float, float]]:
    """The box that covers least, near ones first, and its centre's offset in points."""
    tried: list[tuple[int, int, Box, tuple[float, float]]] = []
    for radius in RADII:
        for k in range(DIRECTIONS):
            turn = 2 * math.pi * k / DIRECTIONS
            dx = math.cos(turn) * (radius * pixel + width / 2)
            dy = math.sin(turn) * (radius * pixel + height / 2)
            box = _around(x + dx, y + dy, width, height)
            outside = width * height - box.overlap(inside)
            cost = round(sum(box.overlap(other) for other in taken) + 4 * outside)
            tried.append((cost, len(tried), box, (dx / pixel, dy / pixel)))
        if min(tried)[0] == 0:
            break
    return min(tried)[2:]
