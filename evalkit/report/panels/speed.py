"""Speed beside quality, from bench.json (written by `evalkit bench`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.analysis.compare import RunComparison
from evalkit.core.errors import EvalkitError
from evalkit.core.files import read_object
from evalkit.core.grid import Grid
from evalkit.core.json_fields import (
    BadField,
    all_parsed,
    optional_fields,
    optional_number,
    optional_parsed,
    text,
)
from evalkit.dsa.json_types import JsonObject
from evalkit.report.charts.speed import speeds
from evalkit.report.panels.base import Drawing, Panel, Section
from evalkit.report.plots.style import COLOURS, MARKERS, new_figure, plain
from evalkit.report.tables import difference, interval
from evalkit.run.store import RunStore
from evalkit.stats import MACRO, Row

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

WINDOWS = ("steady", "whole")


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """Output tokens per second, arm over baseline.

    Attributes:
        value: the ratio.
        low: lower end of its interval.
        high: upper end.
    """

    value: float
    low: float
    high: float

    @classmethod
    def parse(cls, data: JsonObject) -> SpeedRatio | None:
        """None where a number is not known; raises BadField."""
        value, low, high = (optional_number(data, key) for key in ("value", "low", "high"))
        if value is None or low is None or high is None:
            return None
        return cls(value, low, high)


@dataclass(frozen=True, slots=True)
class ArmSpeed:
    """One measured arm.

    Attributes:
        name: of the arm.
        ratio: to the baseline, in the steady window where there is one, else over the whole;
            None for the baseline and where nothing was compared.
    """

    name: str
    ratio: SpeedRatio | None

    @classmethod
    def parse(cls, data: JsonObject) -> ArmSpeed:
        """Raises BadField."""
        return cls(text(data, "name"), optional_parsed(data, "ratios", _first_window))


def _first_window(ratios: JsonObject) -> SpeedRatio | None:
    window = next((name for name in WINDOWS if ratios.get(name)), "")
    return optional_parsed(ratios, window, SpeedRatio.parse)


@dataclass(frozen=True, slots=True)
class BenchRecord:
    """What a report takes from bench.json.

    Attributes:
        baseline: name of the arm that the others are compared with.
        drifted: whether the baseline's speed changed too much for a comparison.
        arms: measured arms, in the recipe's order.
    """

    baseline: str
    drifted: bool
    arms: tuple[ArmSpeed, ...]

    @classmethod
    def parse(cls, data: JsonObject) -> BenchRecord:
        """Raises BadField."""
        drift = optional_fields(data, "drift")
        return cls(
            text(data, "baseline"),
            bool(drift) and not drift.get("holds"),
            all_parsed(data, "arms", ArmSpeed.parse),
        )


def read(folder: Path) -> BenchRecord | None:
    """bench.json of a run directory, or None.

    Raises:
        EvalkitError: it is damaged; names the field.
    """
    path = folder / "bench.json"
    try:
        data = read_object(path)
        return BenchRecord.parse(data) if data.get("arms") else None
    except FileNotFoundError:
        return None
    except BadField as error:
        raise EvalkitError(f"{path}: {error.field}: {error.message}") from None


def table(bench: BenchRecord, comparison: RunComparison) -> Grid:
    """Speed ratio and quality difference of every measured arm, in one row."""
    rows = []
    for arm in bench.arms:
        row, ratio = _row(comparison, arm.name), arm.ratio
        rows.append(
            (
                arm.name,
                "–" if ratio is None else f"{ratio.value:.3f}",
                "–" if ratio is None else f"[{ratio.low:.3f}, {ratio.high:.3f}]",
                "" if row is None else difference(row),
                "NOT EVALUATED" if row is None else interval(row),
                "" if row is None else str(row.verdict),
            )
        )
    head = ("arm", "speed ×", "interval", "quality Δ", "interval", "verdict")
    return Grid(f"output tokens per second against {bench.baseline}", head, tuple(rows), (1, 3))


def figure(bench: BenchRecord, comparison: RunComparison) -> Figure | None:
    """Quality difference over speed ratio, both with intervals; None without such an arm."""
    points = _measured(bench, comparison)
    if not points:
        return None
    drawn = new_figure(7.5, 4.4)
    axes = drawn.add_subplot()
    axes.axhline(-100 * comparison.settings.margin, color=COLOURS[1], lw=1, ls="--")
    axes.axhline(0, color=COLOURS[-1], lw=0.8)
    axes.axvline(1, color=COLOURS[-1], lw=0.8)
    for k, (name, ratio, row) in enumerate(points):
        result = row.result
        if result is None:
            continue
        colour = COLOURS[k % 6]
        axes.hlines(100 * result.delta, ratio.low, ratio.high, color=colour, lw=1.4)
        axes.vlines(ratio.value, 100 * result.low, 100 * result.high, color=colour, lw=1.4)
        axes.plot(
            ratio.value,
            100 * result.delta,
            color=colour,
            ls="",
            marker=MARKERS[k % 7],
            ms=6,
            label=plain(name),
        )
    axes.set_xlabel("speed × (output tokens per second)")
    axes.set_ylabel("quality Δ in points (dashed: minus the margin)")
    axes.grid(True, alpha=0.5)
    drawn.legend(loc="outside right upper", fontsize="small")
    return drawn


def _measured(bench: BenchRecord, comparison: RunComparison) -> list[tuple[str, SpeedRatio, Row]]:
    """The arms that have a speed ratio and a quality difference."""
    return [
        (arm.name, arm.ratio, row)
        for arm in bench.arms
        if arm.ratio and (row := _row(comparison, arm.name)) and row.result
    ]


def _chart(bench: BenchRecord, comparison: RunComparison) -> Markup | None:
    measured = [
        (name, (ratio.value, ratio.low, ratio.high), row)
        for name, ratio, row in _measured(bench, comparison)
    ]
    return speeds(measured, comparison) if measured else None


def _row(comparison: RunComparison, arm: str) -> Row | None:
    """Macro row of an arm that was evaluated."""
    rows = comparison.result.rows
    return next((row for row in rows if (row.arm, row.task) == (arm, MACRO)), None)


def _section(store: RunStore, comparison: RunComparison) -> Section | None:
    bench = read(store.path)
    if bench is None:
        return None
    text = "Measured by `evalkit bench` under one load, the same for every arm."
    if bench.drifted:
        text += " The baseline drifted between its first and last round: no speeds are compared."
    drawing = Drawing(
        "speed",
        "Quality difference over speed ratio",
        lambda: figure(bench, comparison),
        on_page=lambda: _chart(bench, comparison),
    )
    return Section("Speed beside quality", text, (drawing,), (table(bench, comparison),))


PANEL = Panel(_section)
