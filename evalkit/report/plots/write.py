"""Static plots of a report: PNG and SVG files, readable in print."""

from __future__ import annotations

from pathlib import Path

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import by_benchmark
from evalkit.report import overlap, speed
from evalkit.report.plots import curves, heatmap
from evalkit.report.plots.heatmap_sheet import needle_maps, sheet
from evalkit.run.store import RunStore, slug


def write(store: RunStore, comparison: RunComparison, folder: Path) -> list[Path]:
    """Every plot that the run has data for.

    Returns:
        the files, two per plot.
    """
    parts = by_benchmark(comparison)
    names = curves.worse_first(comparison)
    drawn = {
        "retention": curves.retention_curves(comparison, parts),
        "differences": curves.forest(comparison, names) if names else None,
        "ruler-by-length": curves.ruler_by_length(comparison),
        "schedules": curves.schedules(comparison),
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
