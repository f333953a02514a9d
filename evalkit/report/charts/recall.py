"""Recall of every pair of layers as one map, with what each arm reads marked in it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from evalkit.analysis.overlap_record import ArmOverlap, OverlapRecord
from evalkit.dsa import ReuseSchedule
from evalkit.report.charts.heat import Cell, Map
from evalkit.report.charts.template import render


def recall_map(overlap: OverlapRecord) -> Markup:
    """The map at the longest length: row, the layer whose selection is given; column, who reads."""
    entry, layers = overlap.lengths[-1], overlap.layers
    readers: dict[tuple[int, int], list[str]] = {}
    for arm in entry.arms:
        for place in places_read(arm, layers):
            readers.setdefault(place, []).append(arm.name)
    rows = [
        (str(layers[y]), [_cell(layers[x], layers[y], r, readers.get((x, y), ())) for x, r in row])
        for y, row in enumerate(map(enumerate, entry.matrices["recall"]))
    ]
    title = f"recall |A∩B|/k at length {entry.length}"
    shown = Map(title, "given \\ reads", [str(layer) for layer in layers], rows)
    return render("recall.html.j2", map=shown)


def places_read(arm: ArmOverlap, layers: Sequence[int]) -> list[tuple[int, int]]:
    """Places in `layers` of each layer, and of the one whose selection it reads in decode."""
    schedule = ReuseSchedule.parse(arm.schedule)
    place = {layer: k for k, layer in enumerate(layers)}
    ids, sources = schedule.layer_ids, schedule.sources("decode")
    return [
        (place[ids[j]], place[ids[s]])
        for j, s in enumerate(sources)
        if ids[j] in place and ids[s] in place
    ]


def _cell(reader: int, source: int, recall: float, arms: Sequence[str]) -> Cell:
    title = f"{reader} reads {source}: {recall:.2f}"
    by = f" ({', '.join(arms)})" if arms else ""
    return Cell("●" if arms else "", title + by, "score", round(recall, 2))
