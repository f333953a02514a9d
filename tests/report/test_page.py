"""The HTML report: complete, self-contained, and model output is shown, not run."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.core.records import Invocation
from evalkit.report import html
from evalkit.report.charts.template import source
from tests.report.runs import ARMS, SCRIPT, make

CHROMIUM = next((p for n in ("chromium", "chromium-browser") if (p := shutil.which(n))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
STRANGE = "</pre><script>window.broken = true</script> gold 3. "


class KnownPrompts:
    """Prompts that hold the gold in the middle, and something to run."""

    missing = ""

    def text(self, sample_id, sha256):
        number = sample_id.rpartition("/")[2]
        return f"Read this. The code is gold {number} of all. {STRANGE}What is the code?"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    store = make(tmp_path_factory.mktemp("run"))
    begun = [Invocation("evalkit run a.toml --set x=<b>", "/r", "2026-12-01T03:09:17+00:00", 413.2)]
    store.write_run(store.read_run().with_invocations(begun))
    comparison = compare_run(store)
    path = store.path / "report.html"
    html.write(store, comparison, path, KnownPrompts())
    return store, comparison, path


class Page(HTMLParser):
    """Elements, their attributes and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.scripts, self._script = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        self._script = tag == "script"

    def handle_endtag(self, tag):
        self._script = False

    def handle_data(self, data):
        if self._script:
            self.scripts.append(data)


def unpacked(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_sections_and_words(run):
    text = run[2].read_text(encoding="utf-8")
    parts = ("verdict", "retention", "tasks", "ruler", "needle", "counts", "schedules", "samples")
    places = [text.index(f'<section id="{part}"') for part in (*parts, "provenance")]
    assert places == sorted(places)
    assert text.index("Of 5 arms") < text.index('id="forest"') < text.index("<table")
    assert "orse than baseline: it loses more than 5 points" in text
    assert "The highest retention at which an arm is worse is 1/4: IndexCache 1/4." in text
    assert "2026-12-01 03:09, 6 min 53 s" in text
    assert "<code>evalkit run a.toml --set x=&lt;b&gt;</code>" in text


def test_the_first_screen_has_every_arm_on_one_axis(run):
    _, comparison, path = run
    text = path.read_text(encoding="utf-8")
    forest = text[text.index('id="forest"') : text.index("</section>")]
    rows = re.findall(
        r'<span class="badge \w+">([\w ]+)</span>\s*<span class="arm"><b>(.*?)</b>', forest
    )
    assert {arm for _, arm in rows} == {arm[0] for arm in ARMS}
    words = {row.arm: row.verdict for row in comparison.result.rows if row.task == "macro"}
    assert all(words[arm] == word for word, arm in rows)
    order = [word for word, _ in rows]
    ranks = ["baseline", "repeat", "better", "no worse", "undecided", "withheld", "worse"]
    assert order == sorted(order, key=ranks.index)
    margins = set(re.findall(r'class="margin" x1="([\d.]+)%"', forest))
    assert len(margins) == 1  # one line through all rows
    assert forest.count('<svg class="strip"') == len(ARMS)


def test_the_page_speaks_in_points(run):
    """Scores and differences of the tables too; p-values are the only shares of one."""
    _, comparison, path = run
    text = path.read_text(encoding="utf-8")
    body = re.sub(
        r"<pre>.*?</pre>|<script.*?</script>|<table class=\"facts.*?</table>", "", text, flags=re.S
    )
    row = comparison.result.row("IndexCache 1/4")
    assert f"{row.result.delta:+.3f}" not in body
    assert f"−{abs(100 * row.result.delta):.1f}" in body
    assert "margin 5 points" in body
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", body)
    shares = [cell for cell in cells if re.search(r"[-+]?\d\.\d{3}\b", cell)]
    assert all(re.fullmatch(r"(< )?[01]\.\d{3}", cell) for cell in shares)  # p
    assert len(shares) <= len(ARMS)


def test_nothing_comes_from_elsewhere_and_no_output_is_markup(run):
    text = run[2].read_text(encoding="utf-8")
    page = Page(text)
    links = [v for _, key, v in page.attributes if key in ("src", "href", "data", "action")]
    assert all(value.startswith("#") for value in links)
    assert {"link", "iframe", "img", "object", "base"}.isdisjoint(page.tags)
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    assert "@import" not in text
    assert "url(http" not in text
    assert page.tags.count("script") == 3  # index, texts, and our own
    index, texts, code = page.scripts
    assert "innerHTML" not in code
    assert "fetch(" not in code
    assert any(
        SCRIPT in answer for row in unpacked(texts) for pair in row[2] for answer in pair if answer
    )
    assert unpacked(index)["arms"][0] == "baseline"
    policy = next(v for _, key, v in page.attributes if key == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_every_id_is_unique(run):
    ids = re.findall(r' id="([^"]+)"', run[2].read_text(encoding="utf-8"))
    assert len(ids) == len(set(ids))


def test_names_are_escaped(tmp_path):
    strange = (("<b>$x$ & y", "1", 0, False, 1.0), ('</script>%_"onload=x', "1/2", 0, False, 0.5))
    store = make(tmp_path, n=6, arms=strange, tasks=("needle@512", "vt@<i>1</i>"))
    text = html.page(store, compare_run(store))
    assert "<b>$x$" not in text
    assert "<i>" not in text
    assert "&lt;b&gt;$x$ &amp; y" in text
    page = Page(text)
    assert page.tags.count("script") == 3
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]


def test_a_run_of_one_arm_and_one_task_has_a_page(tmp_path):
    store = make(tmp_path, n=4, arms=ARMS[:1], tasks=("vt@4096",))
    text = html.page(store, compare_run(store))
    assert "there is nothing to compare with it yet" in text
    assert '<section id="tasks">' in text


def test_no_label_is_smaller_than_ten_pixels():
    css = source("report.css")
    sizes = re.findall(r"font(?:-size)?:[^;]*?([\d.]+)(rem|px|pt|vw)", css)
    assert len(sizes) > 20
    assert all(unit in ("rem", "px") for _, unit in sizes)
    assert min(float(size) * (16 if unit == "rem" else 1) for size, unit in sizes) >= 10


# -- in a browser ---------------------------------------------------------------------------------


def dump(url, tmp_path, *options):
    """The document as Chromium has it after scripts ran."""
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=5000", *options),
    ]
    return subprocess.run(
        [*command, "--dump-dom", url], capture_output=True, text=True, timeout=120, check=True
    ).stdout


@needs_chromium
def test_chromium_shows_the_sample_of_a_link_and_runs_no_script(run, tmp_path):
    """One start of the browser: the sample of the link, the diff, the needle, nothing run."""
    link = "#sample=needle%40512%2F3&arm=IndexCache%201%2F2"
    found = dump(run[2].as_uri() + link, tmp_path)
    assert "broken" not in re.findall(r"<html[^>]*>", found)[0]
    shown = found[found.index("<article>") : found.index("</article>")]
    assert "needle@512/3</a>" in shown
    assert "&lt;script&gt;window" in re.sub("</?mark>", "", shown)
    assert 'class="needle"' in shown
    assert "gold marked in 2 places" in shown
    assert shown.count('class="side"') == 2
    assert 'aria-pressed="true">IndexCache 1/2' in shown
    page = Page(found)
    assert page.tags.count("script") == 3
    assert "img" not in page.tags


@needs_chromium
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_screenshot_has_the_colours_of_the_scheme(run, tmp_path, scheme):
    from PIL import Image

    picture = tmp_path / "page.png"
    blink = f"--blink-settings=preferredColorScheme={scheme}"
    dump(run[2].as_uri(), tmp_path, blink, "--window-size=420,900", f"--screenshot={picture}")
    with Image.open(picture) as image:
        corner = image.convert("L").getpixel((2, 890))
    assert corner < 60 if scheme == 0 else corner > 240
