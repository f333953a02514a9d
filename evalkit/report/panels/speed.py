"""Speed beside quality, from bench.json (written by `evalkit bench`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.analysis.compare import RunComparison
from evalkit.core.errors import EvalkitError
from evalkit.core.grid import Grid
from evalkit.report.panels.base import Drawing, Panel, Section
from evalkit.report.plots.style import COLOURS, MARKERS, new_figure, plain
from evalkit.report.tables import difference, interval
from evalkit.run.store import RunStore
from evalkit.stats import MACRO, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOWS = ("steady", "whole")


def read(folder: Path) -> Mapping[str, Any] | None:
    """bench.json of a run directory, or None.

    Raises:
        EvalkitError: it is damaged.
    """
    path = folder / "bench.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise EvalkitError(f"{path}: damaged: {error}") from None
    return found if isinstance(found, dict) and found.get("arms") else None


def table(bench: Mapping[str, Any], comparison: RunComparison) -> Grid:
    """Speed ratio and quality difference of every measured arm, in one row."""
    rows = []
    for arm in bench["arms"]:
        row = _row(comparison, arm["name"])
        ratio = _ratio(arm)
        rows.append(
            (
                arm["name"],
                "–" if ratio is None else f"{ratio['value']:.3f}",
                "–" if ratio is None else f"[{ratio['low']:.3f}, {ratio['high']:.3f}]",
                "" if row is None else difference(row),
                "NOT EVALUATED" if row is None else interval(row),
                "" if row is None else row.verdict or "baseline",
            )
        )
    head = ("arm", "speed ×", "interval", "quality Δ", "interval", "verdict")
    return Grid(f"output tokens per second against {bench['baseline']}", head, tuple(rows), (1, 3))


def figure(bench: Mapping[str, Any], comparison: RunComparison) -> Figure | None:
    """Quality difference over speed ratio, both with intervals; None without two such arms."""
    points = [
        (arm["name"], ratio, row.result)
        for arm in bench["arms"]
        if (ratio := _ratio(arm)) and (row := _row(comparison, arm["name"])) and row.result
    ]
    if not points:
        return None
    drawn = new_figure(7.5, 4.4)
    axes = drawn.add_subplot()
    axes.axhline(-100 * comparison.settings.margin, color=COLOURS[1], lw=1, ls="--")
    axes.axhline(0, color=COLOURS[-1], lw=0.8)
    axes.axvline(1, color=COLOURS[-1], lw=0.8)
    for k, (name, ratio, result) in enumerate(points):
        colour = COLOURS[k % 6]
        axes.hlines(100 * result.delta, ratio["low"], ratio["high"], color=colour, lw=1.4)
        axes.vlines(ratio["value"], 100 * result.low, 100 * result.high, color=colour, lw=1.4)
        axes.plot(
            ratio["value"], 100 * result.delta, color=colour, ls="", marker=MARKERS[k % 7], ms=6,
            label=plain(name),
        )  # fmt: skip
    axes.set_xlabel("speed × (output tokens per second)")
    axes.set_ylabel("quality Δ in points (dashed: minus the margin)")
    axes.grid(True, alpha=0.5)
    drawn.legend(loc="outside right upper", fontsize="small")
    return drawn


def _ratio(arm: Mapping[str, Any]) -> Mapping[str, float] | None:
    """Steady window where there is one, else the whole."""
    ratios = arm.get("ratios") or {}
    found = next((ratios[w] for w in WINDOWS if ratios.get(w)), None)
    return found if found and None not in (found["value"], found["low"], found["high"]) else None


def _row(comparison: RunComparison, arm: str) -> Row | None:
    """Macro row of an arm that was evaluated."""
    rows = comparison.result.rows
    return next((row for row in rows if (row.arm, row.task) == (arm, MACRO)), None)


def _section(store: RunStore, comparison: RunComparison) -> Section | None:
    bench = read(store.path)
    if bench is None:
        return None
    drift = bench.get("drift")
    text = "Measured by `evalkit bench` under one load, the same for every arm."
    if drift and not drift["holds"]:
        text += " The baseline drifted between its first and last round: no speeds are compared."
    drawing = Drawing(
        "speed", "Quality difference over speed ratio", lambda: figure(bench, comparison)
    )
    return Section("Speed beside quality", text, (drawing,), (table(bench, comparison),))


PANEL = Panel(_section)
