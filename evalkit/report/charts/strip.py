"""One interval on an axis: the row of a forest plot."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from evalkit.report.charts.scale import Scale, label
from evalkit.report.verdict_text import LOOKS
from evalkit.stats import Row

MARKS = {
    "o": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0",
    "^": "M0-6L6 5H-6z",
    "s": "M-5-5h10v10h-10z",
    "D": "M0-6L6 0L0 6L-6 0z",
    "X": "M-5-5L5 5M-5 5L5-5",
}
"""Paths of markers around (0, 0), by the letter that plots use."""

_LEFT, _RIGHT = "M1 0l8-5v10z", "M-1 0l-8-5v10z"


@dataclass(frozen=True, slots=True)
class Span:
    """What a strip shows; all in the axis' unit.

    Attributes:
        middle: the estimate.
        low: lower end of its interval.
        high: upper end.
        bound: what the verdict rests on, where that is another one.
        look: class of its colour.
        marker: a key of `MARKS`.
    """

    middle: float
    low: float
    high: float
    bound: tuple[float, float] | None = None
    look: str = "base"
    marker: str = "o"


def span_of(row: Row) -> Span | None:
    """Difference, interval, bound and verdict of a row, in points."""
    result, look = row.result, LOOKS[row.verdict]
    if result is None:
        return None
    bound = None
    if row.bound is not None and not row.bound_is_interval:
        bound = (100 * row.bound[0], 100 * row.bound[1])
    middle, low, high = (100 * value for value in (result.delta, result.low, result.high))
    return Span(middle, low, high, bound, look.badge, look.marker)


def ends(span: Span) -> list[float]:
    """What an axis should hold of a strip."""
    return [span.low, span.high, *(span.bound or ())]


def strip(
    span: Span | None, scale: Scale, *, margin: float | None = None, zero: float = 0.0
) -> Markup:
    """A strip as wide as its place; its lines of zero and margin join those above and below.

    Args:
        span: None leaves the lines alone.
        scale: the axis.
        margin: tolerable loss; what lies right of it is tinted.
        zero: where there is no difference.
    """
    parts = []
    if margin is not None:
        at = scale.at(zero - margin)
        parts.append(f'<rect class="fine" x="{at}%" width="{100 - at:.2f}%" height="100%"/>')
        parts.append(f'<line class="margin" x1="{at}%" x2="{at}%" y2="100%"/>')
    parts.append(f'<line class="zero" x1="{scale.at(zero)}%" x2="{scale.at(zero)}%" y2="100%"/>')
    if span is not None:
        parts += _interval(span, scale)
    return Markup(f'<svg class="strip" aria-hidden="true">{"".join(parts)}</svg>')  # noqa: S704


def _interval(span: Span, scale: Scale) -> list[str]:
    parts = [f'<g class="{span.look}">']
    if span.bound is not None:
        parts.append(_line("bound", *span.bound, scale))
    parts.append(_line("interval", span.low, span.high, scale))
    low, high = min(ends(span)), max(ends(span))
    if low < scale.low:
        parts.append(_mark("end", 0.0, _LEFT))
    if high > scale.high:
        parts.append(_mark("end", 100.0, _RIGHT))
    if scale.low <= span.middle <= scale.high:
        parts.append(_mark("mark", scale.at(span.middle), MARKS[span.marker]))
    return [*parts, "</g>"]


def _line(name: str, low: float, high: float, scale: Scale) -> str:
    x1, x2 = scale.at(low), scale.at(high)
    return f'<line class="{name}" x1="{x1}%" x2="{x2}%" y1="50%" y2="50%"/>' if x2 > x1 else ""


def _mark(name: str, at: float, path: str) -> str:
    return f'<svg class="{name}" x="{at}%" y="50%"><path d="{path}"/></svg>'


def axis(scale: Scale, *, most: int = 7, signed: bool = True) -> Markup:
    """Ticks below or above strips.

    Args:
        scale: the axis.
        most: ticks.
        signed: whether numbers carry their sign.
    """
    shown = [(value, label(value) if signed else f"{value:g}") for value in scale.ticks(most)]
    ticks = (f'<span style="left:{scale.at(value)}%">{text}</span>' for value, text in shown)
    return Markup(f'<div class="axis" aria-hidden="true">{"".join(ticks)}</div>')  # noqa: S704
