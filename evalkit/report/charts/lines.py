"""Lines with intervals over a few places, such as retentions or lengths; panels share one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from evalkit.report.charts.scale import Scale, label
from evalkit.report.charts.strip import MARKS
from evalkit.report.charts.template import render

HEIGHT = 230
TOP, BOTTOM = 8, 24
STEP = 6
"""Pixels between lines that meet at one place."""

LEFT, RIGHT = 6.0, 94.0
"""Percent of the width between which places lie."""

SHAPES = ("o", "s", "^", "D", "o", "s", "^")
COLOURS = 7


@dataclass(frozen=True, slots=True)
class Point:
    """One value.

    Attributes:
        place: 0 is left, 1 is right.
        value: in points.
        low: lower end of its interval.
        high: upper end.
        text: what it says when pointed at.
    """

    place: float
    value: float
    low: float
    high: float
    text: str


Lines = Mapping[str, Sequence[Point]]
"""Points by the name of their line."""


@dataclass(frozen=True, slots=True)
class Axes:
    """What the panels share.

    Attributes:
        scale: of values, in points.
        places: (position, label) of the places.
        margin: tolerable loss below zero, or None.
        signed: whether values are differences.
        across: what the places are.
    """

    scale: Scale
    places: Sequence[tuple[float, str]]
    margin: float | None = None
    signed: bool = True
    across: str = ""


def panels(charts: Mapping[str, Lines], axes: Axes) -> Markup:
    """A panel for every title."""
    names = list(dict.fromkeys(name for lines in charts.values() for name in lines))
    numbers = {name: k for k, name in enumerate(names)}
    legend = [(name, k % COLOURS, MARKS[SHAPES[k % COLOURS]]) for name, k in numbers.items()]
    drawn = [(title, _chart(lines, axes, numbers)) for title, lines in charts.items()]
    return render("lines.html.j2", charts=drawn, legend=legend, height=HEIGHT, across=axes.across)


def _chart(lines: Lines, axes: Axes, numbers: Mapping[str, int]) -> Markup:
    parts = []
    for value in axes.scale.ticks(6):
        y = _y(value, axes.scale)
        zero = ' class="zero"' if value == 0 and axes.signed else ""
        parts.append(f'<line{zero} x2="100%" y1="{y}" y2="{y}"/>')
        text = label(value) if axes.signed else f"{value:g}"
        parts.append(f'<text class="value" x="-6" y="{y + 4}">{text}</text>')
    if axes.margin is not None:
        y = _y(-axes.margin, axes.scale)
        parts.append(f'<line class="margin" x2="100%" y1="{y}" y2="{y}"/>')
    for place, text in axes.places:
        parts.append(f'<text class="place" x="{_x(place)}%" y="{HEIGHT - 6}">{text}</text>')
    for name, points in lines.items():
        shift = (numbers[name] - (len(numbers) - 1) / 2) * min(STEP, 48 / len(numbers))
        parts += _line(points, axes.scale, numbers[name] % COLOURS, round(shift, 1))
    return Markup("".join(parts))  # noqa: S704 - numbers, and texts that are escaped in `_line`


def _line(points: Sequence[Point], scale: Scale, number: int, shift: float) -> list[str]:
    """Segments, intervals and markers, moved aside by `shift` pixels."""
    places = [(_x(point.place), _y(point.value, scale)) for point in points]
    parts = [f'<g class="s{number}" transform="translate({shift} 0)">']
    for (x1, y1), (x2, y2) in pairwise(places):
        parts.append(f'<line class="path" x1="{x1}%" y1="{y1}" x2="{x2}%" y2="{y2}"/>')
    for point, (x, y) in zip(points, places, strict=True):
        low, high = _y(point.low, scale), _y(point.high, scale)
        parts.append(f'<line class="interval" x1="{x}%" x2="{x}%" y1="{low}" y2="{high}"/>')
        path = MARKS[SHAPES[number]]
        title = Markup("<title>{}</title>").format(point.text)
        parts.append(f'<svg class="mark" x="{x}%" y="{y}"><path d="{path}"/>{title}</svg>')
    return [*parts, "</g>"]


def _x(place: float) -> float:
    return round(LEFT + (RIGHT - LEFT) * place, 2)


def _y(value: float, scale: Scale) -> float:
    return round(TOP + (1 - scale.at(value) / 100) * (HEIGHT - TOP - BOTTOM), 1)
