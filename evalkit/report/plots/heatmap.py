"""Heat maps of needle tasks: lengths × depths, for every arm and for its difference to another.

Colours are told apart with every common colour blindness and in grey print: `cividis` grows evenly
in brightness, and in a difference (orange, white, violet) what is worse is hatched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from numpy.typing import NDArray

from evalkit.core.errors import EvalkitError
from evalkit.core.records import ItemRow, ScoreRow
from evalkit.dsa.json_types import JsonValue
from evalkit.report.plots.style import plain
from evalkit.run.current_scores import current_scores
from evalkit.run.store import RunStore, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

MOST_DEPTHS = 50
"""More distinct depths than these (random ones) are put together in tenths of the text."""

NUMBERS = 14
"""Up to so many lengths and depths the cells carry their numbers."""

TICKS = 12

DIVERGING = ("#e08214", "#f7f7f7", "#8073ac")
"""Worse, equal, better; light enough for the hatches of what is worse."""


@dataclass(frozen=True, slots=True)
class Heat:
    """Mean scores of one arm on one section.

    Attributes:
        section: the task without its length.
        lengths: columns, growing.
        depths: rows, growing, in percent; the middle of a tenth where depths are put together.
        scores: [depths, lengths] means, nan where there is no sample.
        counts: [depths, lengths] samples.
        unit: of the lengths.
    """

    section: str
    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    scores: NDArray[np.float64]
    counts: NDArray[np.int64]
    unit: str


def sections(items: Mapping[str, ItemRow]) -> dict[str, list[str]]:
    """Sample ids of every section with several depths, by section."""
    by_section: dict[str, list[str]] = {}
    for sample_id, item in items.items():
        if all(_is_finite(item.meta.get(key)) for key in ("length", "depth")):
            by_section.setdefault(section_of(item.task), []).append(sample_id)
    return {
        name: ids
        for name, ids in by_section.items()
        if len({items[i].meta["depth"] for i in ids}) > 1
    }


def section_of(task: str) -> str:
    """A cell's name without its length."""
    return task.partition("@")[0]


def heat(
    section: str,
    ids: Sequence[str],
    items: Mapping[str, ItemRow],
    scores: Mapping[str, ScoreRow],
) -> Heat:
    """Mean scores of the samples `ids`; those without a score are left out."""
    places = [(int(_number(items[i], "length")), _number(items[i], "depth")) for i in ids]
    if len({depth for _, depth in places}) > MOST_DEPTHS:
        places = [(length, 10 * min(depth // 10, 9) + 5) for length, depth in places]
    lengths = tuple(sorted({length for length, _ in places}))
    depths = tuple(sorted({depth for _, depth in places}))
    total = np.zeros((len(depths), len(lengths)))
    counts = np.zeros(total.shape, dtype=np.int64)
    column, row = {v: k for k, v in enumerate(lengths)}, {v: k for k, v in enumerate(depths)}
    for sample_id, (length, depth) in zip(ids, places, strict=True):
        if sample_id in scores:
            total[row[depth], column[length]] += scores[sample_id].score
            counts[row[depth], column[length]] += 1
    with np.errstate(invalid="ignore"):
        means = total / counts
    characters = items[ids[0]].task.endswith("chars")
    return Heat(section, lengths, depths, means, counts, "characters" if characters else "tokens")


def write(store: RunStore, baseline: str | None = None, folder: Path | None = None) -> list[Path]:
    """Heat maps of a scored run, as PNG and SVG.

    Args:
        store: the run.
        baseline: differences are taken to this arm; default: the recipe's, else the first.
        folder: default: ``plots`` in the run.

    Returns:
        the files; empty where no task has lengths and depths.

    Raises:
        EvalkitError: no run here, or the baseline is no arm of it.
    """
    folder = folder or store.path / "plots"
    files: list[Path] = []
    for name, _, figure in figures(store, baseline):
        files += save(figure, folder / name)
    return files


def figures(store: RunStore, baseline: str | None = None) -> Iterator[tuple[str, str, Figure]]:
    """(file name, title, figure) of every heat map; arguments and errors are those of `write`."""
    run = store.read_run()
    names = run.names
    chosen = baseline or str(run.section("compare").get("baseline") or names[0])
    if chosen not in names:
        raise EvalkitError(f"baseline {chosen}: no such arm ({', '.join(names)})")
    for section, maps in maps_of(store, names).items():
        for name, cells in maps.items():
            file = f"heatmap-{slug(section)}-{slug(name)}"
            yield file, f"{section}: {name}", draw(cells, name)
            if name != chosen and chosen in maps:
                title = f"{section}: {name} minus {chosen}"
                figure = draw_difference(cells, maps[chosen], name, chosen)
                yield f"{file}-minus-{slug(chosen)}", title, figure


def maps_of(store: RunStore, names: Sequence[str]) -> dict[str, dict[str, Heat]]:
    """Section -> arm -> map, of the arms that have scores there."""
    items = store.read_items()
    scores = {name: arm.scores for name, arm in current_scores(store, names).items()}
    return {
        section: {
            name: heat(section, ids, items, scores[name])
            for name in names
            if any(i in scores[name] for i in ids)
        }
        for section, ids in sections(items).items()
    }


def draw(cells: Heat, arm: str) -> Figure:
    """One arm: dark is 0, light is 1."""
    figure, axes = _frame(cells, f"{cells.section}: {arm}")
    figure.colorbar(paint(axes, cells), ax=axes, label="score", pad=0.02)
    return figure


def draw_difference(cells: Heat, base: Heat, arm: str, baseline: str) -> Figure:
    """One arm minus another: orange and hatched is worse, violet is better, white is equal."""
    change = difference(cells, base)
    figure, axes = _frame(cells, f"{cells.section}: {arm} minus {baseline}")
    image = paint_difference(axes, change, max(0.1, float(np.nanmax(np.abs(change), initial=0.0))))
    label = "difference of scores (hatched: worse)"
    figure.colorbar(image, ax=axes, label=label, pad=0.02)
    return figure


def difference(cells: Heat, base: Heat) -> NDArray[np.float64]:
    """[depths, lengths] score minus the baseline's; NaN where they have unequally many samples."""
    return np.where(cells.counts == base.counts, cells.scores - base.scores, np.nan)


def paint(axes: Axes, cells: Heat) -> QuadMesh:
    """Fill axes with the scores of one arm; returns what a colour bar describes."""
    image = axes.pcolormesh(cells.scores, cmap="cividis", vmin=0, vmax=1)
    _numbers(axes, cells.scores, signed=False)
    return image


def paint_difference(axes: Axes, change: NDArray[np.float64], top: float) -> QuadMesh:
    """Fill axes with differences [depths, lengths] on a scale of -top to top."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("worse to better", DIVERGING)
    image = axes.pcolormesh(change, cmap=colours, vmin=-top, vmax=top)
    worse = np.ma.masked_where(~(change < 0), change)
    axes.pcolor(worse, cmap=colours, vmin=-top, vmax=top, hatch="////", edgecolor="0.1", lw=0)
    _numbers(axes, change, signed=True)
    return image


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and as SVG; equal figures make equal files."""
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg")]
    with mpl.rc_context({"svg.hashsalt": "evalkit", "svg.fonttype": "path"}):
        figure.savefig(files[0], dpi=150, metadata={"Software": None})
        figure.set_layout_engine("none")  # it is laid out; twice takes twice as long
        figure.savefig(files[1], metadata={"Date": None, "Creator": None})
    return files


def _frame(cells: Heat, title: str) -> tuple[Figure, Axes]:
    """Axes with lengths to the right and depths downwards; grey crosses where nothing was asked."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = cells.scores.shape
    size = (min(14.0, 3.4 + 0.62 * columns), min(9.0, 2.2 + 0.42 * rows))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    seen = cells.counts[cells.counts > 0]
    fewest, most = (int(seen.min()), int(seen.max())) if seen.size else (0, 0)
    many = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    axes.set_title(f"{plain(title)}\nsamples per cell: {many}", fontsize="medium")
    axes.set_xlabel(f"length ({cells.unit})")
    axes.set_ylabel("depth of the needle (%)")
    place_ticks(axes, cells)
    for y, x in np.argwhere(cells.counts == 0):
        axes.text(x + 0.5, y + 0.5, "×", ha="center", va="center", color="0.4")
    return figure, axes


def place_ticks(axes: Axes, cells: Heat) -> None:
    """Lengths to the right, depths downwards; what was not asked is grey."""
    axes.set_facecolor("0.85")
    at, shown = _ticks([short(length) for length in cells.lengths])
    axes.set_xticks(at, shown, rotation=0 if len(cells.lengths) <= NUMBERS else 45)
    axes.set_yticks(*_ticks([f"{depth:.3g}" for depth in cells.depths]))
    axes.set_ylim(len(cells.depths), 0)


def _ticks(labels: Sequence[str]) -> tuple[list[float], list[str]]:
    """Positions and labels, thinned out to `TICKS` or so, the last always shown."""
    step = -(-len(labels) // TICKS)
    shown = [k for k in range(0, len(labels), step) if k == 0 or len(labels) - 1 - k >= step / 2]
    shown = sorted({*shown, len(labels) - 1})
    return [k + 0.5 for k in shown], [labels[k] for k in shown]


def _numbers(axes: Axes, values: NDArray[np.float64], *, signed: bool) -> None:
    """Percentages inside the cells of a small map, dark on light and light on dark."""
    if max(values.shape) > NUMBERS:
        return
    for (y, x), value in np.ndenumerate(values):
        if not np.isnan(value):
            shown = f"{100 * value:+.0f}" if signed else f"{100 * value:.0f}"
            shown = "0" if shown in ("+0", "-0") else shown
            text = axes.text(x + 0.5, y + 0.5, shown, ha="center", va="center", fontsize="small")
            text.set_color("black" if signed or value > 0.5 else "white")
            if signed and shown != "0":
                text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.8})


def short(length: int) -> str:
    """4K, 131K, 1.5K or 500."""
    if length < 1000:
        return str(length)
    thousands = length / 1000
    return f"{thousands:.0f}K" if thousands >= 10 else f"{thousands:.1f}K".replace(".0K", "K")


def _is_finite(value: JsonValue) -> TypeGuard[float]:
    finite = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
    return bool(finite)


def _number(item: ItemRow, key: str) -> float:
    """A number of a sample's meta data, which `sections` has checked."""
    value = item.meta[key]
    return float(value) if _is_finite(value) else math.nan
