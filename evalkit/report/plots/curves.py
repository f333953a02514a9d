"""Plots of a comparison: quality against retention, differences per task, RULER by length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import place
from evalkit.report.own_samples import has_own
from evalkit.report.plots.style import COLOURS, LINES, MARKERS, new_figure, plain
from evalkit.report.verdict_text import LOOKS
from evalkit.stats import MACRO, Comparison, Row
from evalkit.tasks.ruler.aggregate import aggregate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 4
"""Arms side by side in a forest plot."""


def retention_curves(comparison: RunComparison, parts: Mapping[str, Comparison]) -> Figure | None:
    """Score against retention: one panel for the macro average and one per benchmark.

    Points and bands are the paired difference and its interval, laid around the baseline's score,
    so that an arm over fewer samples stands where it would beside the baseline on those samples;
    points without neighbours in their family carry bars. None where no schedule is known.
    """
    groups = families(comparison)
    if not groups:
        return None
    panels = {"macro average": comparison.result} | (dict(parts) if len(parts) > 1 else {})
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(max(5.2, 4.0 * columns), 3.6 * lines)
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True)
    shares = sorted({share for points in groups.values() for share, _ in points}, reverse=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, part) in zip(grid.flat, panels.items(), strict=False):
        _curves(axes, part, groups)
        axes.set_title(plain(title), fontsize="medium")
        axes.set_xticks([octave(s) for s in shares], [str(s) for s in shares])
        axes.grid(True, axis="y", alpha=0.6)
    for axes in grid[:, 0]:
        axes.set_ylabel("score")
    figure.supxlabel("retention (full layers ÷ layers with an indexer)", fontsize="medium")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))
    return figure


def families(comparison: RunComparison) -> dict[str, list[tuple[Fraction, str]]]:
    """(retention, arm) of every family, from high to low; the A/A twin stays out."""
    twin = comparison.options.repeat
    groups: dict[str, list[tuple[Fraction, str]]] = {}
    for arm in comparison.arms:
        at = place(arm)
        if at.family is None or at.retention is None or arm.name == twin:
            continue
        if arm.name in comparison.scored:
            groups.setdefault(at.family, []).append((at.retention, arm.name))
    return {name: sorted(points, reverse=True) for name, points in groups.items()}


def _curves(
    axes: Axes, part: Comparison, families: Mapping[str, Sequence[tuple[Fraction, str]]]
) -> None:
    rows = {row.arm: row for row in part.rows if row.task == MACRO}
    base = rows[part.baseline].score or 0.0
    axes.axhline(base, color=COLOURS[-1], lw=1, label=f"baseline: {plain(part.baseline)}")
    for k, (family, points) in enumerate(families.items()):
        seen = [(octave(share), rows[arm]) for share, arm in points if arm in rows]
        if not seen:
            continue
        colour, marker = COLOURS[k % 6], MARKERS[k % 7]
        x = [at for at, _ in seen]
        y = [base + row.result.delta if row.result else base for _, row in seen]
        low = [max(0.0, base + row.result.low) if row.result else base for _, row in seen]
        high = [min(1.0, base + row.result.high) if row.result else base for _, row in seen]
        axes.plot(
            x, y, color=colour, marker=marker, ms=5, lw=1.6, ls=LINES[k % 7], label=plain(family)
        )
        axes.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
        axes.vlines(x, low, high, color=colour, lw=1, alpha=0.7)
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(-0.03, bottom), min(1.03, top))


def forest(comparison: RunComparison, names: Sequence[str]) -> Figure:
    """Δ per task and of the macro average for some arms, with margin and bound.

    Args:
        comparison: of the run.
        names: arms, one panel each.
    """
    tasks = [task.name for task in comparison.tasks]
    rows_shown = [MACRO, *tasks] if len(tasks) > 1 else tasks
    columns = min(PANELS, len(names))
    lines = math.ceil(len(names) / columns)
    figure = new_figure(2.2 + 2.7 * columns, lines * (0.75 + 0.24 * max(3, len(rows_shown))) + 0.5)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, names, strict=False):
        rows = {row.task: row for row in comparison.result.rows if row.arm == name}
        _forest(axes, comparison, [rows.get(task) for task in rows_shown])
        axes.set_title(plain(name), fontsize="medium")
        axes.set_yticks(range(len(rows_shown)), [plain(task) for task in rows_shown])
        axes.set_ylim(len(rows_shown) - 0.5, -0.5)
    figure.supxlabel(
        f"Δ to {plain(comparison.result.baseline)} in points (scales differ between arms);"
        " dashed: minus the margin; thin: bound of the verdict",
        fontsize="medium",
    )
    return figure


def _forest(axes: Axes, comparison: RunComparison, rows: Sequence[Row | None]) -> None:
    settings = comparison.settings
    axes.axvline(0, color=COLOURS[-1], lw=0.8)
    for y, row in enumerate(rows):
        margin = comparison.options.margin_of(row.task if row else MACRO)
        axes.vlines(-100 * margin, y - 0.5, y + 0.5, color=COLOURS[1], lw=1, ls="--")
        if row is None or row.result is None:
            continue
        look, result = LOOKS[row.verdict], row.result
        colour = COLOURS[look.colour]
        if row.bound is not None and not row.bound_is_interval:
            low, high = row.bound
            axes.hlines(y, 100 * low, 100 * high, color=colour, lw=0.7, alpha=0.7)
        axes.hlines(y, 100 * result.low, 100 * result.high, color=colour, lw=1.6)
        axes.plot(100 * result.delta, y, color=colour, marker=look.marker, ms=5, ls="")
    left, right = axes.get_xlim()
    least = 150 * settings.margin
    axes.set_xlim(min(left, -least), max(right, least))
    axes.grid(True, axis="x", alpha=0.6)


def ruler_curves(comparison: RunComparison) -> dict[str, dict[int, float]]:
    """RULER's mean score by length, by arm."""
    curves = {}
    result = comparison.result
    base = {row.task: row for row in result.rows if row.arm == result.baseline}
    for arm in comparison.arms:
        rows = [r for r in result.rows if r.arm == arm.name and r.task != MACRO]
        summary = aggregate({r.task: r.score for r in rows if r.score is not None})
        if summary:
            fewer = any(has_own(row, base.get(row.task)) for row in rows)
            name = f"{arm.name} (fewer samples)" if fewer else arm.name
            curves[name] = {row.length: row.score for row in summary.lengths}
    return curves


def ruler_by_length(comparison: RunComparison) -> Figure | None:
    """RULER's mean score at every length, one line per arm; None without RULER."""
    curves = ruler_curves(comparison)
    lengths = sorted({length for curve in curves.values() for length in curve})
    if len(lengths) < 2:
        return None
    figure = new_figure(8.0, 4.2)
    axes = figure.add_subplot()
    for k, (name, curve) in enumerate(curves.items()):
        axes.plot(
            [math.log2(length) for length in curve],
            list(curve.values()),
            color=COLOURS[k % 6],
            marker=MARKERS[k % 7],
            ls=LINES[(k // 6) % 7],
            lw=1.5,
            ms=5,
            label=plain(name),
        )
    axes.set_xticks([math.log2(n) for n in lengths], [thousands(n) for n in lengths])
    axes.set_xlabel("length (tokens)")
    axes.set_ylabel("RULER: mean score of its tasks")
    axes.set_ylim(-0.03, 1.03)
    axes.grid(True, axis="y", alpha=0.6)
    figure.legend(loc="outside right upper", fontsize="small")
    return figure


def schedules(comparison: RunComparison) -> Figure | None:
    """The schedule of every arm as a strip: full layers dark, shared ones light.

    The number in a cell is the layer whose selection it reads in decode, where that is another.
    None where no schedule is known.
    """
    known = {arm.name: arm.schedule for arm in comparison.arms if arm.schedule is not None}
    if not known:
        return None
    most = max(len(schedule.layer_ids) for schedule in known.values())
    figure = new_figure(min(16.0, 2.6 + 0.26 * most), 0.9 + 0.34 * len(known))
    axes = figure.add_subplot()
    for y, schedule in enumerate(known.values()):
        ids = schedule.layer_ids
        for x, letter in enumerate(schedule.pattern):
            full, source = letter == "F", schedule.source[x]
            cell = (x - 0.46, y - 0.4)
            _cell(axes, cell, full=full)
            if source != x:
                axes.text(
                    x,
                    y,
                    str(ids[source]),
                    ha="center",
                    va="center",
                    fontsize=7 if most <= 40 else 5,
                    color="white" if full else "#1a1a1a",
                )
    axes.set_xlim(-0.6, most - 0.4)
    axes.set_ylim(len(known) - 0.4, -0.6)
    axes.set_yticks(range(len(known)), [plain(name) for name in known])
    ids = next(iter(known.values())).layer_ids
    step = 1 if most <= 26 else 4
    axes.set_xticks(range(0, len(ids), step), [str(i) for i in ids[::step]], fontsize="small")
    axes.set_xlabel(
        "layer; dark: full, light: shared; number: the layer whose selection is read in decode"
    )
    axes.tick_params(length=0)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    return figure


def _cell(axes: Axes, corner: tuple[float, float], *, full: bool) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle(corner, 0.92, 0.8, facecolor=COLOURS[0] if full else "#cfe3f1", edgecolor="none")
    )


def worse_first(comparison: RunComparison) -> list[str]:
    """Arms with a macro result, the baseline's twin last, else in the order of the run."""
    twin = comparison.options.repeat
    paired = {row.arm for row in comparison.result.rows if row.result is not None}
    names = [arm.name for arm in comparison.arms if arm.name in paired]
    return sorted(names, key=lambda name: name == twin)


def octave(share: Fraction) -> float:
    """Position of a retention: 1 is 0, 1/2 is 1, 1/4 is 2 …"""
    return -math.log2(share)


def thousands(length: int) -> str:
    """A length: 4K, 128K, 500."""
    return f"{length / 1024:.3g}K" if length >= 1024 else str(length)
