"""How to add a thing: each is one new file and one new line, made here in a copy of the package."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from difflib import unified_diff

import pytest

from tests.cli.test_guests import ENGINE, IMPORTER, RECIPE, SCORER, TASK
from tests.paths import ROOT

EXPORT = """
from evalkit.core.files import write_atomic
from evalkit.exporters.format import ExportFormat


def write(results, out):
    path = out / f"{results.name}.csv"
    write_atomic(path, "".join(f"{cell.name},{cell.mean}\\n" for cell in results.cells))
    return [path]


FORMAT = ExportFormat(write)
"""
INTERVAL = """
from dataclasses import replace

from evalkit.stats.interval_method import IntervalMethod
from evalkit.stats.score_interval import closed_form_arms


def arms(scores):
    results = closed_form_arms(scores, lambda *_: "t")
    return replace(
        results,
        overall=tuple(replace(result, method="wald") for result in results.overall),
        strata={
            task: tuple(replace(result, method="wald") for result in rows)
            for task, rows in results.strata.items()
        },
    )


METHOD = IntervalMethod(arms)
"""
PANEL = """
from evalkit.core.grid import Grid
from evalkit.report.panels.base import Drawing, Panel, Section, Table
from evalkit.report.plots.style import new_figure


def grid(comparison):
    return Grid("Letters", ("name of the arm",), tuple((a.name,) for a in comparison.arms))


PANEL = Panel(
    lambda store, comparison: Section(
        "Letters",
        drawings=(Drawing("letters", "nothing to see", lambda: new_figure(2, 2)),),
        tables=(grid(comparison),),
    ),
    lambda comparison: [Table(grid(comparison), ("counted by hand",))],
)
"""


@dataclass(frozen=True)
class Addition:
    """A new file, and the line that lists it behind the last line of its registry."""

    file: str
    source: str
    registry: str
    last: str
    line: str


ADDITIONS = {
    "benchmark task": Addition(
        "evalkit/tasks/echo.py",
        TASK,
        "evalkit/tasks/registry.py",
        '        "coreference": "evalkit.tasks.coreference:KIND",\n',
        '        "echo": "evalkit.tasks.echo:KIND",\n',
    ),
    "scorer": Addition(
        "evalkit/scorers/prefix.py",
        SCORER,
        "evalkit/scorers/__init__.py",
        '        "choice": "evalkit.scorers.choice:CHOICE",\n',
        '        "prefix": "evalkit.scorers.prefix:METRIC",\n',
    ),
    "engine": Addition(
        "evalkit/engines/parrot.py",
        ENGINE,
        "evalkit/config/engine.py",
        '        "openai_server": "evalkit.engines.openai:KIND",\n',
        '        "parrot": "evalkit.engines.parrot:KIND",\n',
    ),
    "import format": Addition(
        "evalkit/importers/acme_csv.py",
        IMPORTER,
        "evalkit/importers/__init__.py",
        '        "kvpress": "evalkit.importers.kvpress:FORMAT",\n',
        '        "acme_csv": "evalkit.importers.acme_csv:FORMAT",\n',
    ),
    "export format": Addition(
        "evalkit/exporters/means.py",
        EXPORT,
        "evalkit/exporters/__init__.py",
        '        "model_card": "evalkit.exporters.model_card:FORMAT",\n',
        '        "means": "evalkit.exporters.means:FORMAT",\n',
    ),
    "interval method": Addition(
        "evalkit/stats/wald.py",
        INTERVAL,
        "evalkit/stats/methods.py",
        '        "studentized": "evalkit.stats.bootstrap:STUDENTIZED",\n',
        '        "wald": "evalkit.stats.wald:METHOD",\n',
    ),
    "report panel": Addition(
        "evalkit/report/panels/letters.py",
        PANEL,
        "evalkit/report/panels/__init__.py",
        '        "schedules": "evalkit.report.panels.schedules:PANEL",\n',
        '        "letters": "evalkit.report.panels.letters:PANEL",\n',
    ),
}


class House:
    """A copy of the package with every addition made, and its command."""

    def __init__(self, root):
        self.root = root
        for name in ("evalkit", "data_cards"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for addition in ADDITIONS.values():
            (root / addition.file).write_text(addition.source, encoding="utf-8")
            registry = root / addition.registry
            text = registry.read_text(encoding="utf-8")
            assert text.count(addition.last) == 1
            registry.write_text(text.replace(addition.last, addition.last + addition.line))

    def evalkit(self, *args):
        """Standard output of a command that ends well."""
        done = subprocess.run(
            [sys.executable, "-m", "evalkit.cli", *map(str, args)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.root,
            env={"PYTHONPATH": str(self.root), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    return House(tmp_path_factory.mktemp("house"))


@pytest.fixture(scope="module")
def run(house, checkpoint):
    """A run whose task, scorer and engine were added, and what the command printed."""
    recipe = house.root / "recipe.toml"
    recipe.write_text(RECIPE.format(model=checkpoint), encoding="utf-8")
    printed = house.evalkit("run", recipe, "--out", house.root / "run")
    return house.root / "run", printed


def differences(root):
    """Files that only the copy has, and lines that it added or took away, by file."""
    files = {p.relative_to(root) for p in (root / "evalkit").rglob("*") if p.suffix == ".py"}
    fresh = sorted(str(f) for f in files if not (ROOT / f).exists())
    lines = {}
    for file in sorted(f for f in files if (ROOT / f).exists()):
        pair = [(place / file).read_text(encoding="utf-8").splitlines() for place in (ROOT, root)]
        found = [line for line in unified_diff(*pair, n=0) if line[:3] not in ("---", "+++")]
        if changed := [line for line in found if line[0] in "+-"]:
            lines[str(file)] = changed
    return fresh, lines


def test_each_is_one_file_and_one_line(house):
    fresh, lines = differences(house.root)
    assert fresh == sorted(addition.file for addition in ADDITIONS.values())
    assert lines == {a.registry: ["+" + a.line.rstrip("\n")] for a in ADDITIONS.values()}


def test_a_task_a_scorer_and_an_engine(house, run):
    out, printed = run
    assert "echo@3" in printed
    assert "a word said again\n" in house.evalkit("tasks")
    scores = (out / "arms" / "some" / "scores.jsonl").read_text().splitlines()
    assert [json.loads(line)["score"] for line in scores] == [2 / 5, 2 / 4, 2 / 4]
    record = json.loads((out / "run.json").read_text())
    assert "speed" not in record["identity"]["engine"]
    assert record["identity"]["engine"] == {"kind": "parrot", "keep": 2}
    assert "guests" not in record["environment"]
    house.evalkit("export", "model_card", out, "--out", house.root / "cards")
    assert "type: accuracy" in (house.root / "cards" / "all" / "model-index.yaml").read_text()
    house.evalkit("report", out, "--layout", "retention", "--out", house.root / "table.md")
    assert "Echoes" in (house.root / "table.md").read_text()


def test_an_import_format(house):
    source, out = house.root / "answers.csv", house.root / "imported"
    source.write_text("apple,apple\npear,pe\n")
    house.evalkit("import", "acme_csv", source, "--arm", "theirs", "--out", out)
    assert "acme_csv" in " ".join(house.evalkit("import", "--help").split())


def test_an_export_format(house, run):
    out = house.root / "means"
    house.evalkit("export", "means", run[0], "--out", out)
    assert (out / "all.csv").read_text() == "echo@3,1.0\n"
    assert "means" in house.evalkit("export", "--help")


def test_an_interval_method(house, run):
    house.evalkit("compare", run[0], "--set", "method=wald")
    rows = json.loads((run[0] / "compare.json").read_text())["rows"]
    assert {row["method"] for row in rows if row["arm"] == "some"} == {"wald"}


def test_a_panel_is_on_the_page_in_the_plots_in_the_terminal_and_in_markdown(house, run):
    printed = house.evalkit("compare", run[0])
    assert "Letters" in printed
    assert "· counted by hand" in printed
    markdown = (run[0] / "report.md").read_text()
    assert "Letters" in markdown
    assert "- counted by hand" in markdown
    house.evalkit("report", run[0])
    page = (run[0] / "report.html").read_text()
    assert '<section id="letters">' in page
    assert 'aria-label="nothing to see"' in page
    assert (run[0] / "plots" / "letters.png").is_file()
