"""The report as one HTML file: no network, no outside script, model output shown and never run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.analysis.compare import RunComparison
from evalkit.analysis.grouping import by_benchmark
from evalkit.core.provenance import model_name
from evalkit.report import overlap, speed, stopping, verdict_text
from evalkit.report.plots import curves
from evalkit.report.plots.heatmap_sheet import needle_maps, sheet
from evalkit.report.plots.style import inline_svg, page_colours
from evalkit.report.provenance import grids
from evalkit.report.sample_browser import KEEP_ALL, samples, script_json
from evalkit.report.tables import Grid, by_task, counts, notes, summary
from evalkit.run.store import RunStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BADGES = {"no worse": "good", "worse": "bad", "undecided": "open", "baseline": "base"}


@dataclass(frozen=True, slots=True)
class Picture:
    """An inline figure."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the page."""

    id: str
    title: str
    lead: str
    figures: tuple[Picture, ...] = ()
    tables: tuple[Grid, ...] = ()


def page(store: RunStore, comparison: RunComparison, *, public: bool = False) -> str:
    """The whole page.

    Args:
        store: the run, or several merged.
        comparison: of it.
        public: without samples and without anything that names a machine.
    """
    from jinja2 import Environment, StrictUndefined

    if public:
        comparison = _without_messages(comparison)
    folder = resources.files("evalkit.report") / "page"
    css, js, template = (
        (folder / name).read_text(encoding="utf-8")
        for name in ("report.css", "report.js", "report.html.j2")
    )
    data = None if public else samples(store, comparison)
    parts = [part for make in PARTS if (part := make(store, comparison))]
    run = store.read_run()
    digest = base64.b64encode(hashlib.sha256(js.encode()).digest()).decode()
    recipe = None if public else json.dumps(run.get("recipe") or {}, indent=1, ensure_ascii=False)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template).render(
        title=_title(comparison),
        subtitle=_subtitle(comparison),
        contents=_contents(parts, browser=data is not None),
        css=css,
        js=js,
        script_sha256=digest,
        badges=BADGES,
        headline=verdict_text.headline(comparison),
        verdicts=_verdicts(comparison),
        summary=summary(comparison),
        notes=notes(comparison),
        parts=parts,
        browser=None if data is None else script_json(data),
        browser_lead="" if data is None else _browser_lead(data),
        provenance=grids(run, comparison),
        recipe=recipe,
        confidence=f"{100 * comparison.settings.confidence:g}",
    )


def _without_messages(comparison: RunComparison) -> RunComparison:
    """Without what servers and people wrote: it may name a machine."""
    arms = tuple({k: v for k, v in arm.items() if k != "note"} for arm in comparison.arms)
    return replace(comparison, arms=arms, failures={})


def _title(comparison: RunComparison) -> str:
    models = list(dict.fromkeys(name for arm in comparison.arms if (name := model_name(arm))))
    return f"Index reuse: {', '.join(models)}" if models else "Comparison of arms"


def _subtitle(comparison: RunComparison) -> str:
    tasks = [task["name"] for task in comparison.tasks]
    shown = ", ".join(tasks[:6]) + (f" and {len(tasks) - 6} more" if len(tasks) > 6 else "")
    planned = sum(task["samples"] for task in comparison.tasks)
    return f"{len(comparison.arms)} arms, {planned:,} samples each: {shown}"


def _contents(parts: list[Part], *, browser: bool) -> list[tuple[str, str]]:
    links = [("verdict", "Verdict"), *((part.id, part.title) for part in parts)]
    if browser:
        links.append(("samples", "Samples"))
    return [*links, ("provenance", "Provenance")]


def _verdicts(comparison: RunComparison) -> list[dict[str, str]]:
    return [
        {
            "arm": row.arm,
            "verdict": row.verdict,
            "text": verdict_text.sentence(row, comparison),
            "caution": (row.result.caution if row.result else None) or "",
        }
        for row in verdict_text.rows(comparison)
        if row.arm != comparison.settings.repeat_of_baseline
    ]


def _browser_lead(data: Mapping[str, Any]) -> str:
    kept, total = len(data["rows"]), data["total"]
    text = f"{kept:,} of {total:,} samples"
    if total > KEEP_ALL:
        text += " (those on which arms differ, or an answer failed)"
    return f"{text}; answers are cut at {data['cut']:,} characters."


# -- sections --------------------------------------------------------------------------------------


def _inline(make: Callable[[], Figure | None], name: str, alt: str) -> tuple[Picture, ...]:
    with page_colours():
        figure = make()
    return () if figure is None else (Picture(inline_svg(figure, name, alt)),)


def _stopping(_: RunStore, comparison: RunComparison) -> Part | None:
    found = comparison.until_decided
    if found is None:
        return None
    return Part(
        "stopping", "Stopped when decided", stopping.saved(found), (), (stopping.table(found),)
    )


def _retention(_: RunStore, comparison: RunComparison) -> Part | None:
    parts = by_benchmark(comparison)
    found = _inline(
        lambda: curves.retention_curves(comparison, parts),
        "retention",
        "Score against retention, one line per family of arms, with interval bands",
    )
    text = (
        "One line per family. Bands are the paired intervals, laid around the baseline's score:"
        " where a band leaves the grey line, the difference is beyond chance."
    )
    return Part("retention", "Quality against retention", text, found) if found else None


def _forest(_: RunStore, comparison: RunComparison) -> Part | None:
    names = curves.worse_first(comparison)
    if not names:
        return Part("tasks", "By task", "", (), (by_task(comparison),))
    found = _inline(
        lambda: curves.forest(comparison, names),
        "forest",
        "Difference to the baseline per task with intervals, one panel per arm",
    )
    text = "Circle: no worse. Square: worse. Diamond: undecided. The bar is the interval."
    return Part("tasks", "Differences by task", text, found, (by_task(comparison),))


def _ruler(_: RunStore, comparison: RunComparison) -> Part | None:
    found = _inline(
        lambda: curves.ruler_by_length(comparison), "ruler", "RULER score against length"
    )
    return Part("ruler", "RULER by length", "", found) if found else None


def _own(_: RunStore, comparison: RunComparison) -> Part | None:
    if not comparison.summaries:
        return None
    notes = " ".join(f"{line}." for found in comparison.summaries for line in found.notes)
    grids = tuple(found.grid for found in comparison.summaries)
    return Part("benchmarks", "What the benchmarks report", notes, (), grids)


def _needle(store: RunStore, comparison: RunComparison) -> Part | None:
    names, base = [arm["name"] for arm in comparison.arms], comparison.result.baseline
    pictures: list[Picture] = []
    with page_colours():
        for section, maps in needle_maps(store, names).items():
            if base in maps:
                figure = sheet(maps, base)
                svg = inline_svg(figure, f"map{len(pictures)}", f"Heat maps of {section}")
                pictures.append(Picture(svg, section))
    text = "Every arm, and below it its difference to the baseline; hatched is worse."
    if not pictures:
        return None
    return Part("needle", "Needles by length and depth", text, tuple(pictures))


def _overlap(_: RunStore, comparison: RunComparison) -> Part | None:
    found = comparison.overlap
    if found is None:
        return None
    pictures = _inline(lambda: overlap.maps(found), "overlap", "Recall of every pair of layers")
    beside = overlap.beside_quality(comparison)
    grids = [overlap.adjacent(found), overlap.arms(found)] + ([beside] if beside else [])
    text = (
        f"Measured without generating: {overlap.heading(found)}. Dots mark what each arm reads;"
        " in brackets its mean selection recall."
    )
    return Part("overlap", "What the selections say", text, pictures, tuple(reversed(grids)))


def _speed(store: RunStore, comparison: RunComparison) -> Part | None:
    bench = speed.read(store.path)
    if bench is None:
        return None
    pictures = _inline(
        lambda: speed.figure(bench, comparison), "speed", "Quality difference over speed ratio"
    )
    drift = bench.get("drift")
    text = "Measured by `evalkit bench` under one load, the same for every arm."
    if drift and not drift["holds"]:
        text += " The baseline drifted between its first and last round: no speeds are compared."
    return Part("speed", "Speed beside quality", text, pictures, (speed.table(bench, comparison),))


def _counts(_: RunStore, comparison: RunComparison) -> Part:
    text = "A failed generation scores 0 and stays in the denominator."
    return Part("counts", "Answers", text, (), (counts(comparison),))


def _schedules(_: RunStore, comparison: RunComparison) -> Part | None:
    found = _inline(
        lambda: curves.schedules(comparison),
        "strips",
        "Schedule of every arm, layer by layer: full or shared, and which layer is read",
    )
    text = "In prefill a lag does not act, unless the schedule says phase=all."
    return Part("schedules", "Schedules", text, found) if found else None


PARTS: tuple[Callable[[RunStore, RunComparison], Part | None], ...] = (
    _stopping,
    _retention,
    _forest,
    _ruler,
    _own,
    _needle,
    _overlap,
    _speed,
    _counts,
    _schedules,
)


def write(store: RunStore, comparison: RunComparison, path: Path) -> None:
    """Write the page."""
    from evalkit.core.files import write_atomic

    write_atomic(path, page(store, comparison))
