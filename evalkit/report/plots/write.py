"""Static plots of a report: PNG and SVG files, readable in print."""

from __future__ import annotations

from pathlib import Path

from evalkit.analysis.compare import RunComparison
from evalkit.report.panels import PANELS
from evalkit.report.plots.heatmap import save
from evalkit.run.store import RunStore


def write(store: RunStore, comparison: RunComparison, folder: Path) -> list[Path]:
    """Every plot that the run has data for.

    Returns:
        the files, two per plot.
    """
    files: list[Path] = []
    for panel in PANELS.usable():
        section = panel.section(store, comparison)
        for drawing in section.drawings if section is not None else ():
            figure = drawing.draw()
            if figure is not None:
                files += save(figure, folder / drawing.name)
    return files
