"""Tables and heat maps of overlap.json, and the same figures beside quality."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evalkit.analysis.compare import RunComparison
from evalkit.dsa import ReuseSchedule
from evalkit.report.panels.base import Drawing, Panel, Section, Table
from evalkit.report.plots.style import new_figure, plain
from evalkit.report.tables import Grid, difference, interval
from evalkit.run.store import RunStore
from evalkit.stats import MACRO

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 4


def heading(overlap: Mapping[str, Any]) -> str:
    """Model, data, k and rows in one line."""
    counts = {entry["documents"] for entry in overlap["lengths"]}
    documents = "–".join(str(n) for n in sorted({min(counts), max(counts)}))
    return (
        f"{overlap['model']}, {overlap['data']} ({documents} documents), k = {overlap['k']},"
        f" {overlap['rows']} rows per document in the last eighth of each length"
    )


def adjacent(overlap: Mapping[str, Any]) -> Grid:
    """Consecutive layers at every length: Jaccard (the MLI paper's figure) and recall."""
    rows = [
        (str(e["length"]), *(_estimate(e["adjacent"][key]) for key in ("jaccard", "recall")))
        for e in overlap["lengths"]
    ]
    head = ("length", "Jaccard |A∩B|/|A∪B|", "recall |A∩B|/k")
    return Grid("consecutive layers, mean [95 % interval over documents]", head, tuple(rows), (0,))


def arms(overlap: Mapping[str, Any]) -> Grid:
    """What every arm's sources supply, at every length."""
    rows = []
    for arm in [a["name"] for a in overlap["lengths"][-1]["arms"]]:
        for entry in overlap["lengths"]:
            found = next(a for a in entry["arms"] if a["name"] == arm)
            rows.append(
                (
                    arm,
                    str(entry["length"]),
                    _estimate(found["selection_recall"]),
                    f"{found['worst_selection_recall']:.2f}",
                    _estimate(found.get("mass_recall")),
                    _plain(found.get("worst_mass_recall")),
                )
            )
    head = ("arm", "length", "selection recall", "worst layer", "attention mass", "worst layer")
    return Grid(
        "what the sources supply, mean over layers that read another one's [95 % interval]",
        head,
        tuple(rows),
        (1, 3, 5),
    )


def beside_quality(comparison: RunComparison) -> Grid | None:
    """Overlap at the longest length beside the macro difference; None without a common arm.

    An arm counts as the same by name and schedule.
    """
    overlap = comparison.overlap
    if overlap is None:
        return None
    entry = overlap["lengths"][-1]
    rows = []
    for arm in comparison.arms:
        found = next((a for a in entry["arms"] if a["name"] == arm["name"]), None)
        row = next(
            (r for r in comparison.result.rows if (r.arm, r.task) == (arm["name"], MACRO)), None
        )
        text = (arm.get("schedule") or {}).get("text")
        if found is None or row is None or row.result is None or found["schedule"] != text:
            continue
        rows.append(
            (
                arm["name"],
                _estimate(found["selection_recall"]),
                _estimate(found.get("mass_recall")),
                difference(row),
                interval(row),
                row.verdict,
            )
        )
    if not rows:
        return None
    head = ("arm", "selection recall", "attention mass", "Δ", "interval", "verdict")
    title = f"overlap beside quality: {heading(overlap)}, length {entry['length']}"
    return Grid(title, head, tuple(rows), (3,))


def maps(overlap: Mapping[str, Any]) -> Figure:
    """Recall of every pair of layers at the longest length, one panel per arm.

    Column: the layer that reads; row: the layer whose selection it is given. Dots mark what the
    arm's schedule reads.
    """
    entry, layers = overlap["lengths"][-1], overlap["layers"]
    found = entry["arms"]
    columns = min(COLUMNS, len(found))
    lines = math.ceil(len(found) / columns)
    figure = new_figure(3.1 * columns + 0.9, 3.2 * lines + 0.5)
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    image: Any = None
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    for axes, arm in zip(grid.flat, found, strict=False):
        matrix = entry["matrices"]["recall"]
        image = axes.pcolormesh(matrix, cmap="cividis", vmin=0, vmax=1)
        schedule = ReuseSchedule.parse(arm["schedule"])
        place = {layer: k for k, layer in enumerate(layers)}
        ids, sources = schedule.layer_ids, schedule.sources("decode")
        points = [
            (place[ids[j]] + 0.5, place[ids[s]] + 0.5)
            for j, s in enumerate(sources)
            if ids[j] in place and ids[s] in place
        ]
        axes.plot(
            *zip(*points, strict=True),
            ls="",
            marker="o",
            ms=3.4,
            mfc="white",
            mec="#d00000",
            mew=1.0,
        )
        recall = arm["selection_recall"]["mean"]
        axes.set_title(plain(f"{arm['name']} ({recall:.2f})"), fontsize="small")
        step = max(1, len(layers) // 6)
        at = range(0, len(layers), step)
        axes.set_xticks([k + 0.5 for k in at], [str(layers[k]) for k in at], fontsize="small")
        axes.set_yticks([k + 0.5 for k in at], [str(layers[k]) for k in at], fontsize="small")
        axes.set_ylim(len(layers), 0)
    figure.supxlabel("layer that reads", fontsize="medium")
    figure.supylabel("layer whose selection it is given", fontsize="medium")
    figure.colorbar(image, ax=grid, label="recall |A∩B|/k", shrink=0.7, pad=0.02)
    return figure


def _estimate(found: Mapping[str, float | None] | None) -> str:
    if found is None:
        return "–"
    if found["low"] is None:
        return f"{found['mean']:.3f}"
    return f"{found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _section(_: RunStore, comparison: RunComparison) -> Section | None:
    overlap = comparison.overlap
    if overlap is None:
        return None
    beside = beside_quality(comparison)
    text = (
        f"Measured without generating: {heading(overlap)}. Dots mark what each arm reads;"
        " in brackets its mean selection recall."
    )
    drawing = Drawing("overlap", "Recall of every pair of layers", lambda: maps(overlap))
    tables = (*((beside,) if beside else ()), arms(overlap), adjacent(overlap))
    return Section("What the selections say", text, (drawing,), tables)


def _text(comparison: RunComparison) -> list[Table]:
    beside = beside_quality(comparison)
    return [] if beside is None else [Table(beside)]


PANEL = Panel(_section, _text)
