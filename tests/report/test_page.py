"""The HTML report: complete, self-contained, and model output is shown, not run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.report import html
from evalkit.report.sample_browser import KEEP_ALL, samples, script_json
from tests.report.runs import ARMS, SCRIPT, make

CHROMIUM = next((p for n in ("chromium", "chromium-browser") if (p := shutil.which(n))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    store = make(tmp_path_factory.mktemp("run"))
    comparison = compare_run(store)
    path = store.path / "report.html"
    html.write(store, comparison, path)
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


def test_sections_and_words(run):
    text = run[2].read_text(encoding="utf-8")
    for part in ("verdict", "retention", "tasks", "ruler", "needle", "counts", "schedules"):
        assert f'<section id="{part}">' in text
    assert '<section id="samples">' in text
    assert '<section id="provenance">' in text
    assert text.index("Of 5 arms") < text.index("<table")  # in words before any number
    assert "worse than baseline: it loses more than 5 points" in text
    assert "The highest retention at which an arm is worse is 1/4: IndexCache 1/4." in text
    assert text.count("<svg") >= 5


def test_nothing_comes_from_elsewhere_and_no_output_is_markup(run):
    text = run[2].read_text(encoding="utf-8")
    page = Page(text)
    links = [v for _, key, v in page.attributes if key in ("src", "href", "data", "action")]
    assert all(value.startswith(("#", "data:image/png")) for value in links)
    assert {"link", "iframe", "img", "object", "base"}.isdisjoint(page.tags)
    assert "@import" not in text
    assert "url(http" not in text
    assert page.tags.count("script") == 2  # the data and our own
    data, code = page.scripts
    assert "<" not in data
    assert "innerHTML" not in code
    assert "fetch(" not in code
    rows = json.loads(data)["rows"]
    assert any(SCRIPT in row[4] for row in rows)
    policy = next(v for _, key, v in page.attributes if key == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'")


def test_every_id_is_unique(run):
    ids = re.findall(r' id="([^"]+)"', run[2].read_text(encoding="utf-8"))
    assert len(ids) == len(set(ids))


def test_names_are_escaped(tmp_path):
    strange = (("<b>$x$ & y", "1", 0, False, 1.0), ("</script>%_", "1/2", 0, False, 0.5))
    store = make(tmp_path, n=6, arms=strange, tasks=("needle@512",))
    text = html.page(store, compare_run(store))
    assert "<b>$x$" not in text
    assert "&lt;b&gt;$x$ &amp; y" in text
    assert Page(text).tags.count("script") == 2


def test_browser_keeps_what_tells_arms_apart(run):
    store, comparison, _ = run
    data = samples(store, comparison)
    assert data.arms[0] == "baseline"
    assert len(data.arms) == len(ARMS)
    assert data.total == len(data.rows) == 200  # small: all are kept
    row = next(r for r in data.rows if r[0] == "needle@512/5")
    failed = data.arms.index("IndexCache 1/4")
    assert row[7][failed] == "error"
    assert row[6][failed] == 0.0
    assert row[5][data.arms.index("again")] == row[5][0]  # equal answers are kept once


def test_of_many_samples_only_telling_ones_are_kept(tmp_path):
    store = make(tmp_path, n=KEEP_ALL + 100, arms=ARMS[:2], tasks=("needle@512",))
    data = samples(store, compare_run(store))
    assert data.total == KEEP_ALL + 100
    assert [row[0] for row in data.rows] == ["needle@512/3"]  # where one answered otherwise


@pytest.mark.parametrize("text", ["</script>", "<!--", "a\u2028b", "\ud800", "&lt;", "]]>"])
def test_script_json_cannot_be_left(text):
    written = script_json([text])
    assert not set(written) & set("<>&\u2028\u2029")
    assert json.loads(written) == [text]
    written.encode("utf-8")


def dump(path, tmp_path, *options):
    """The document as Chromium has it after scripts ran."""
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=5000", *options),
    ]
    command += ["--dump-dom", path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@needs_chromium
def test_chromium_shows_scripts_and_runs_none(run, tmp_path):
    _, _, path = run
    found = dump(path, tmp_path)
    assert "page 1 of" in found  # our script ran under its content policy
    assert "&lt;script&gt;window.broken = true&lt;/script&gt;" in found
    page = Page(found)
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert page.tags.count("article") == 20


@needs_chromium
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_screenshot_has_the_colours_of_the_scheme(run, tmp_path, scheme):
    from PIL import Image

    picture = tmp_path / "page.png"
    blink = f"--blink-settings=preferredColorScheme={scheme}"
    dump(run[2], tmp_path, blink, "--window-size=1200,900", f"--screenshot={picture}")
    with Image.open(picture) as image:
        corner = image.convert("L").getpixel((2, 890))
    assert corner < 60 if scheme == 0 else corner > 240


@pytest.mark.slow
@needs_chromium
def test_twelve_arms_of_five_thousand_samples_open(tmp_path):
    arms = tuple((f"arm {k}", "1", 0, False, 0.97 - 0.05 * k) for k in range(12))
    store = make(tmp_path / "run", n=1000, arms=arms)
    path = tmp_path / "report.html"
    html.write(store, compare_run(store), path)
    assert path.stat().st_size < 40e6
    assert Page(dump(path, tmp_path)).tags.count("article") == 20
