"""Tables and heat maps of overlap.json, and the same figures beside quality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.overlap_record import ArmOverlap, MeanInterval, OverlapRecord
from evalkit.core.grid import Grid
from evalkit.report.charts.recall import places_read, recall_map
from evalkit.report.panels.base import Drawing, Panel, Section, Table
from evalkit.report.plots.style import new_figure, plain
from evalkit.report.tables import difference, interval
from evalkit.run.store import RunStore
from evalkit.stats import MACRO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

COLUMNS = 4


def heading(overlap: OverlapRecord) -> str:
    """Model, data, k and rows in one line."""
    counts = {entry.documents for entry in overlap.lengths}
    documents = "–".join(str(n) for n in sorted({min(counts), max(counts)}))
    return (
        f"{overlap.model}, {overlap.data} ({documents} documents), k = {overlap.k},"
        f" {overlap.rows} rows per document in the last eighth of each length"
    )


def adjacent(overlap: OverlapRecord) -> Grid:
    """Consecutive layers at every length: Jaccard (the MLI paper's figure) and recall."""
    rows = [
        (str(e.length), *(_estimate(e.adjacent[key]) for key in ("jaccard", "recall")))
        for e in overlap.lengths
    ]
    head = ("length", "Jaccard |A∩B|/|A∪B|", "recall |A∩B|/k")
    return Grid("consecutive layers, mean [95 % interval over documents]", head, tuple(rows), (0,))


def arms(overlap: OverlapRecord) -> Grid:
    """What every arm's sources supply, at every length."""
    rows = []
    for name in [arm.name for arm in overlap.lengths[-1].arms]:
        for entry in overlap.lengths:
            arm = next(arm for arm in entry.arms if arm.name == name)
            rows.append(
                (
                    name,
                    str(entry.length),
                    _estimate(arm.selection_recall),
                    f"{arm.worst_selection_recall:.2f}",
                    _estimate(arm.mass_recall),
                    _plain(arm.worst_mass_recall),
                )
            )
    head = ("arm", "length", "selection recall", "worst layer", "attention mass", "worst layer")
    return Grid(
        "what the sources supply, mean over layers that read another one's or select by a policy"
        " [95 % interval]",
        head,
        tuple(rows),
        (1, 3, 5),
    )


def beside_quality(comparison: RunComparison) -> Grid | None:
    """Overlap at the longest length beside the macro difference; None without a common arm.

    An arm counts as the same by name, schedule and selection.
    """
    overlap = comparison.overlap
    if overlap is None:
        return None
    entry = overlap.lengths[-1]
    measured = {arm.name: arm for arm in entry.arms}
    macro = {row.arm: row for row in comparison.result.rows if row.task == MACRO}
    rows = []
    for arm in comparison.arms:
        supplied, row = measured.get(arm.name), macro.get(arm.name)
        if supplied is None or row is None or row.result is None:
            continue
        if (supplied.schedule, supplied.selection) != (arm.schedule_text, arm.selection):
            continue
        rows.append(
            (
                arm.name,
                _estimate(supplied.selection_recall),
                _estimate(supplied.mass_recall),
                difference(row),
                interval(row),
                row.verdict,
            )
        )
    if not rows:
        return None
    head = ("arm", "selection recall", "attention mass", "Δ", "interval", "verdict")
    title = f"overlap beside quality: {heading(overlap)}, length {entry.length}"
    return Grid(title, head, tuple(rows), (3,))


def maps(overlap: OverlapRecord) -> Figure:
    """Recall of every pair of layers at the longest length, one panel per arm.

    Column: the layer that reads; row: the layer whose selection it is given. Dots mark what the
    arm's schedule reads.
    """
    entry = overlap.lengths[-1]
    columns = min(COLUMNS, len(entry.arms))
    lines = math.ceil(len(entry.arms) / columns)
    figure = new_figure(3.1 * columns + 0.9, 3.2 * lines + 0.5)
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(entry.arms) :]:
        axes.set_visible(False)
    images: list[QuadMesh] = []
    for axes, arm in zip(grid.flat, entry.arms, strict=False):
        recalls = entry.matrices["recall"]
        images.append(axes.pcolormesh(recalls, cmap="cividis", vmin=0, vmax=1))
        _mark_sources(axes, arm, overlap.layers)
        recall = arm.selection_recall.mean
        axes.set_title(plain(f"{arm.name} ({recall:.2f})"), fontsize="small")
        _layer_ticks(axes, overlap.layers)
    figure.supxlabel("layer that reads", fontsize="medium")
    figure.supylabel("layer whose selection it is given", fontsize="medium")
    figure.colorbar(images[-1], ax=grid, label="recall |A∩B|/k", shrink=0.7, pad=0.02)
    return figure


def _mark_sources(axes: Axes, arm: ArmOverlap, layers: Sequence[int]) -> None:
    """A dot where a layer meets the one whose selection it reads in decode."""
    points = [(reader + 0.5, source + 0.5) for reader, source in places_read(arm, layers)]
    axes.plot(
        *zip(*points, strict=True),
        ls="",
        marker="o",
        ms=3.4,
        mfc="white",
        mec="#d00000",
        mew=1.0,
    )


def _layer_ticks(axes: Axes, layers: Sequence[int]) -> None:
    at = range(0, len(layers), max(1, len(layers) // 6))
    axes.set_xticks([k + 0.5 for k in at], [str(layers[k]) for k in at], fontsize="small")
    axes.set_yticks([k + 0.5 for k in at], [str(layers[k]) for k in at], fontsize="small")
    axes.set_ylim(len(layers), 0)


def _estimate(value: MeanInterval | None) -> str:
    if value is None:
        return "–"
    if value.low is None:
        return f"{value.mean:.3f}"
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _section(_: RunStore, comparison: RunComparison) -> Section | None:
    overlap = comparison.overlap
    if overlap is None:
        return None
    beside = beside_quality(comparison)
    text = f"Measured without generating: {heading(overlap)}. Dots mark what arms read."
    drawing = Drawing(
        "overlap",
        "Recall of every pair of layers",
        lambda: maps(overlap),
        on_page=lambda: recall_map(overlap),
    )
    tables = (*((beside,) if beside else ()), arms(overlap), adjacent(overlap))
    return Section("What the selections say", text, (drawing,), tables)


def _text(comparison: RunComparison) -> list[Table]:
    beside = beside_quality(comparison)
    return [] if beside is None else [Table(beside)]


PANEL = Panel(_section, _text)
