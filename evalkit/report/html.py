"""The report as one HTML file: no network, no outside script, model output shown and never run."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from evalkit.analysis.compare import RunComparison
from evalkit.core.grid import Grid
from evalkit.core.provenance import model_name
from evalkit.report import verdict_text
from evalkit.report.panels import PANELS
from evalkit.report.panels.base import Section
from evalkit.report.plots.style import inline_svg, page_colours
from evalkit.report.provenance import grids
from evalkit.report.sample_browser import KEEP_ALL, BrowserData, samples
from evalkit.report.tables import notes, summary
from evalkit.run.store import RunStore
from evalkit.stats.comparison import REPEAT

BADGES = {word: look.badge for word, look in verdict_text.LOOKS.items()}
MEANINGS = {word: look.meaning for word, look in verdict_text.LOOKS.items() if look.meaning}


@dataclass(frozen=True, slots=True)
class Picture:
    """An inline figure."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the page with its figures drawn."""

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
    parts = [
        part
        for name in PANELS
        if (section := PANELS[name].section(store, comparison)) and (part := _part(name, section))
    ]
    run = store.read_run()
    digest = base64.b64encode(hashlib.sha256(js.encode()).digest()).decode()
    recipe = None if public else json.dumps(run.recipe, indent=1, ensure_ascii=False)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template).render(
        title=_title(comparison),
        subtitle=_subtitle(comparison),
        contents=_contents(parts, browser=data is not None),
        css=css,
        js=js,
        script_sha256=digest,
        badges=BADGES,
        meanings=MEANINGS,
        headline=verdict_text.headline(comparison),
        verdicts=_verdicts(comparison),
        summary=summary(comparison),
        notes=notes(comparison),
        parts=parts,
        browser=None if data is None else data.script(),
        browser_lead="" if data is None else _browser_lead(data),
        provenance=grids(run, comparison),
        recipe=recipe,
        confidence=f"{100 * comparison.settings.confidence:g}",
    )


def _without_messages(comparison: RunComparison) -> RunComparison:
    """Without what servers and people wrote: it may name a machine."""
    arms = tuple(replace(arm, note="") for arm in comparison.arms)
    return replace(comparison, arms=arms, failures={})


def _title(comparison: RunComparison) -> str:
    names = [model_name(arm.model) for arm in comparison.arms]
    models = list(dict.fromkeys(filter(None, names)))
    return f"Index reuse: {', '.join(models)}" if models else "Comparison of arms"


def _subtitle(comparison: RunComparison) -> str:
    tasks = [task.name for task in comparison.tasks]
    shown = ", ".join(tasks[:6]) + (f" and {len(tasks) - 6} more" if len(tasks) > 6 else "")
    planned = sum(task.samples for task in comparison.tasks)
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
            "notes": "; ".join(row.notes),
        }
        for row in verdict_text.rows(comparison)
        if row.verdict != REPEAT
    ]


def _browser_lead(data: BrowserData) -> str:
    text = f"{len(data.rows):,} of {data.total:,} samples"
    if data.total > KEEP_ALL:
        text += " (those on which arms differ, or an answer failed)"
    return f"{text}; answers are cut at {data.cut:,} characters."


def _part(id_: str, section: Section) -> Part | None:
    """A section with its figures drawn; None where nothing is in it."""
    pictures = []
    for drawing in section.drawings:
        with page_colours():
            figure = drawing.draw()
        if figure is not None:
            svg = inline_svg(figure, drawing.name, drawing.alt)
            pictures.append(Picture(svg, drawing.caption))
    if not pictures and not section.tables:
        return None
    return Part(id_, section.title, section.lead, tuple(pictures), section.tables)


def write(store: RunStore, comparison: RunComparison, path: Path) -> None:
    """Write the page."""
    from evalkit.core.files import write_atomic

    write_atomic(path, page(store, comparison))
