"""The report as one HTML file: no network, no outside script, model output shown and never run."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from markupsafe import Markup

from evalkit.analysis.compare import RunComparison
from evalkit.core.grid import Grid
from evalkit.core.provenance import model_name
from evalkit.core.records import RunRecord
from evalkit.report import verdict_text
from evalkit.report.charts.forest import forest
from evalkit.report.charts.template import render, source
from evalkit.report.panels import PANELS
from evalkit.report.panels.base import Drawing, Section
from evalkit.report.payload import Payload, packed, payload
from evalkit.report.plots.style import inline_svg, page_colours
from evalkit.report.provenance import grids
from evalkit.report.sample_browser import Prompts, Samples, samples
from evalkit.report.tables import notes, summary
from evalkit.run.store import RunStore

BADGES = {word: look.badge for word, look in verdict_text.LOOKS.items()}
MEANINGS = {word: look.meaning for word, look in verdict_text.LOOKS.items() if look.meaning}


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart, or an inline figure."""

    markup: Markup
    caption: str = ""
    is_chart: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the page with its figures drawn.

    Attributes:
        folded: whether its tables repeat its figures.
    """

    id: str
    title: str
    lead: str
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Grid, ...] = ()
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Browser:
    """The sample browser.

    Attributes:
        lead: what it holds.
        missing: what stands in the place of a prompt that is not there.
        index: packed.
        texts: packed; empty where a server has them.
    """

    lead: str
    missing: str
    index: str
    texts: str = ""

    @property
    def served(self) -> bool:
        """Whether texts are asked for one by one."""
        return not self.texts


@dataclass(frozen=True, slots=True)
class Answered:
    """When and how the answers were made; each is empty where it is not known, or not public."""

    when: str = ""
    took: str = ""
    command: str = ""


def page(
    store: RunStore,
    comparison: RunComparison,
    *,
    public: bool = False,
    prompts: Prompts | None = None,
) -> str:
    """The whole page, samples in it.

    Args:
        store: the run, or several merged.
        comparison: of it.
        public: without samples and without anything that names a machine.
        prompts: where the texts of prompts come from.
    """
    if public:
        return _page(store, _without_messages(comparison), None, public=True)
    held = payload(samples(store, comparison, prompts))
    missing = f"The prompt is not shown: {held.prompts}. `evalkit report --serve` tries each alone."
    browser = Browser(_lead(held), missing if held.prompts else "", held.index, held.texts)
    return _page(store, comparison, browser)


def served_page(store: RunStore, comparison: RunComparison, held: Samples) -> str:
    """The page whose texts a server has (`evalkit.report.serve`)."""
    lead = f"{len(held.ids):,} samples, whole."
    browser = Browser(lead, "", packed(held.index(held.ids)))
    return _page(store, comparison, browser)


def _page(
    store: RunStore, comparison: RunComparison, browser: Browser | None, *, public: bool = False
) -> str:
    parts = [
        part
        for name in PANELS
        if (section := PANELS[name].section(store, comparison)) and (part := _part(name, section))
    ]
    run = store.read_run()
    files = ["forest.js"]
    if browser is not None:
        files += ["served.js" if browser.served else "stored.js", "samples.js"]
    js = '"use strict";\n' + "".join(map(source, files))
    recipe = None if public else json.dumps(run.recipe, indent=1, ensure_ascii=False)
    text = render(
        "report.html.j2",
        title=_title(comparison),
        subtitle=_subtitle(comparison),
        run=_answered(run, public=public),
        contents=_contents(parts, browser=browser is not None),
        css=source("report.css"),
        js=js,
        script_sha256=base64.b64encode(hashlib.sha256(js.encode()).digest()).decode(),
        badges=BADGES,
        meanings=MEANINGS,
        headline=verdict_text.headline(comparison),
        forest=forest(comparison),
        summary=summary(comparison),
        notes=notes(comparison),
        parts=parts,
        samples=browser,
        provenance=grids(run, comparison),
        recipe=recipe,
        confidence=f"{100 * comparison.settings.confidence:g}",
    )
    return str(text)


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


def _answered(run: RunRecord, *, public: bool) -> Answered:
    """Of the processes that answered: the first day, all their time, the last command."""
    if not run.invocations:
        return Answered()
    began = datetime.fromisoformat(run.invocations[0].started)
    if public:
        return Answered(f"{began:%Y-%m-%d}")
    seconds = round(sum(one.seconds for one in run.invocations))
    many = f" in {len(run.invocations)} goes" if len(run.invocations) > 1 else ""
    return Answered(
        f"{began:%Y-%m-%d %H:%M}", _duration(seconds) + many, run.invocations[-1].command
    )


def _duration(seconds: int) -> str:
    """2 h 05 min, 6 min 53 s, 12 s."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def _contents(parts: list[Part], *, browser: bool) -> list[tuple[str, str]]:
    links = [("verdict", "Verdict"), *((part.id, part.title) for part in parts)]
    if browser:
        links.append(("samples", "Samples"))
    return [*links, ("provenance", "Provenance")]


def _lead(held: Payload) -> str:
    text = f"{held.kept:,} of {held.total:,} samples"
    if held.kept < held.total:
        text += " (those on which arms differ, or an answer failed)"
    if held.cut is None:
        return f"{text}, whole."
    return (
        f"{text}; answers are cut at {held.cut:,} characters, so that this file stays small:"
        " `evalkit report --serve` shows them whole."
    )


def _part(id_: str, section: Section) -> Part | None:
    """A section with its figures drawn; None where nothing is in it."""
    pictures = [picture for drawing in section.drawings if (picture := _picture(drawing))]
    if not pictures and not section.tables:
        return None
    charts = any(picture.is_chart for picture in pictures)
    return Part(id_, section.title, section.lead, tuple(pictures), section.tables, charts)


def _picture(drawing: Drawing) -> Picture | None:
    """What the page shows of a drawing."""
    if drawing.on_page is not None:
        chart = drawing.on_page()
        return None if chart is None else Picture(chart, drawing.caption, is_chart=True)
    with page_colours():
        figure = drawing.draw()
    if figure is None:
        return None
    svg = Markup(inline_svg(figure, drawing.name, drawing.alt))  # noqa: S704 - made here
    return Picture(svg, drawing.caption)


def write(
    store: RunStore, comparison: RunComparison, path: Path, prompts: Prompts | None = None
) -> None:
    """Write the page."""
    from evalkit.core.files import write_atomic

    write_atomic(path, page(store, comparison, prompts=prompts))
