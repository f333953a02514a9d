"""Static plots of a report: PNG and SVG files, readable in print."""

from __future__ import annotations

from pathlib import Path

from evalkit.compare import RunComparison
from evalkit.report import figures, heatmap, overlap, speed
from evalkit.report.heatsheet import needle_maps, sheet
from evalkit.report.layout import by_benchmark
from evalkit.store import RunStore, slug


def write(store: RunStore, comparison: RunComparison, folder: Path) -> list[Path]:
    """Every plot that the run has data for.

    Returns:
        the files, two per plot.
    """
    parts = by_benchmark(comparison)
    names = figures.worse_first(comparison)
    drawn = {
        "retention": figures.retention_curves(comparison, parts),
        "differences": figures.forest(comparison, names) if names else None,
        "ruler-by-length": figures.ruler_by_length(comparison),
        "schedules": figures.schedules(comparison),
    }
    if comparison.overlap is not None:
        drawn["overlap"] = overlap.maps(comparison.overlap)
    bench = speed.read(store.path)
    if bench is not None:
        drawn["speed"] = speed.figure(bench, comparison)
    files: list[Path] = []
    for name, figure in drawn.items():
        if figure is not None:
            files += heatmap.save(figure, folder / name)
    names, base = [arm["name"] for arm in comparison.arms], comparison.result.baseline
    for section, maps in needle_maps(store, names).items():
        if base in maps:
            files += heatmap.save(sheet(maps, base), folder / f"heatmaps-{slug(section)}")
    return files
