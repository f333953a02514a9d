"""A foreign package adds a task, a scorer, an engine, an import format; and faults of packages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack

import pytest

from evalkit.run.store import RunStore
from tests import guests
from tests.command import evalkit
from tests.paths import ROOT

TASK = """
from dataclasses import dataclass
from typing import Literal

from evalkit.core.recipe import Strict
from evalkit.core.types import Sample
from evalkit.tasks.base import TaskKind


class EchoConfig(Strict):
    kind: Literal["echo"] = "echo"
    words: tuple[str, ...]
    metric: str = "prefix"


@dataclass(frozen=True)
class EchoTask:
    config: EchoConfig

    @property
    def name(self):
        return f"echo@{len(self.config.words)}"

    @property
    def deviations(self):
        return {}

    def __len__(self):
        return len(self.config.words)

    def sample(self, index, renderer):
        word = self.config.words[index]
        return Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=f"Say {word}",
            references=(word,),
            metric=self.config.metric,
            max_new_tokens=4,
        )


KIND = TaskKind(
    config=EchoConfig,
    build=lambda config, base_dir: [EchoTask(config)],
    descriptions=lambda: {"echo": "a word said again"},
    columns={"echo": "Echoes"},
)
"""
SCORER = '''
from evalkit.scorers.base import plain


def prefix(prediction, references):
    """Share of the reference that the answer begins with."""
    (word,) = references
    same = 0
    while same < min(len(word), len(prediction)) and word[same] == prediction[same]:
        same += 1
    return same / len(word)


METRIC = plain(prefix, hub="accuracy")
'''
ENGINE = '''
from typing import Literal

from evalkit.config.engine import EngineKind
from evalkit.core.recipe import Strict
from evalkit.core.types import Completion


class ParrotConfig(Strict):
    kind: Literal["parrot"] = "parrot"
    keep: int = 2
    speed: int = 1


class Parrot:
    """Says the first letters of the word; arms named "all" say all of it."""

    def __init__(self, config):
        self.config = config

    def load(self, model):
        return {"weights_sha256": "parrot"}

    def native(self):
        return None

    def answer(self, arm, schedule, prompts, done):
        for prompt in prompts:
            if prompt.sample.id not in done:
                word = prompt.sample.text.removeprefix("Say ")
                text = word if arm.name == "all" else word[: self.config.keep]
                yield [Completion(prompt.sample.id, text, "stop", 1, 1, 0.0)]

    def engagement(self):
        return {"verdict": "not applicable: a parrot"}


KIND = EngineKind(config=ParrotConfig, open=Parrot, throughput=frozenset({"speed"}))
'''
IMPORTER = """
from evalkit.importers import ImportFormat
from evalkit.data.records import SourceLocation
from evalkit.importers.common.predictions import Prediction


def read(path, predictions):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        word, said = line.split(",")
        where = SourceLocation(path.name, number)
        predictions.add(Prediction("echo@3", said, (word,), "prefix", where, key=str(number)))


FORMAT = ImportFormat(read)
"""
MODULES = {
    "acme/__init__.py": "",
    "acme/task.py": TASK,
    "acme/scorer.py": SCORER,
    "acme/engine.py": ENGINE,
    "acme/importer.py": IMPORTER,
}
ENTRIES = {
    "evalkit.tasks": {"echo": "acme.task:KIND"},
    "evalkit.scorers": {"prefix": "acme.scorer:METRIC"},
    "evalkit.engines": {"parrot": "acme.engine:KIND"},
    "evalkit.importers": {"acme_csv": "acme.importer:FORMAT"},
}
RECIPE = """
model = "{model}"
[engine]
kind = "parrot"
[[tasks]]
kind = "echo"
words = ["apple", "pear", "plum"]
[[arms]]
name = "all"
[[arms]]
name = "some"
"""
ORDINARY = """
model = "{model}"
[engine]
kind = "oracle"
[[tasks]]
kind = "graphwalk"
lengths = [4096]
samples = 2
[[arms]]
name = "one"
[[arms]]
name = "two"
"""
PACKAGE = "acme-evalkit 1.2"


@pytest.fixture
def install(tmp_path):
    """Install the package, whole or with other modules and entry points, for the rest of a test."""
    with ExitStack() as stack:

        def add(modules=MODULES, entries=ENTRIES):
            folder = guests.write(
                tmp_path / "site", "acme-evalkit", {**MODULES, **modules}, entries, "1.2"
            )
            stack.enter_context(guests.installed(folder))
            return folder

        yield add


@pytest.fixture
def recipe(tmp_path, checkpoint):
    def write(text=RECIPE):
        path = tmp_path / "recipe.toml"
        path.write_text(text.format(model=checkpoint), encoding="utf-8")
        return path

    return write


def environment(out):
    return json.loads((out / "run.json").read_text())["environment"]


def one_line(capsys, *words):
    """What went to standard error: a single line with these words and the package."""
    error = capsys.readouterr().err
    assert error.startswith("evalkit: "), error
    assert error.count("\n") == 1, error
    for word in (PACKAGE, *words):
        assert word in error
    return error


def test_tasks_of_a_package_are_listed_with_it(install, capsys):
    install()
    assert evalkit("tasks") == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("echo"))
    assert line.split(maxsplit=2)[:2] == ["echo", "echo"]
    assert line.endswith("a word said again  [acme-evalkit 1.2]")
    assert sum("[" in line for line in lines) == 1


def test_its_task_scorer_and_engine_run_as_ours(install, recipe, tmp_path, capsys):
    install()
    out, path = tmp_path / "run", recipe()
    assert evalkit("run", path, "--out", out) == 0
    assert "echo@3" in capsys.readouterr().out
    store = RunStore(out)
    scores = {arm: [r.score for r in store.read_scores(arm).values()] for arm in ("all", "some")}
    assert scores == {"all": [1, 1, 1], "some": [2 / 5, 2 / 4, 2 / 4]}
    assert environment(out)["guests"] == {"acme-evalkit": "1.2"}
    assert "acme" not in json.dumps(environment(out)["packages"])
    before = (out / "run.json").read_bytes()
    assert evalkit("run", path, "--out", out, "--set", "engine.speed=9") == 0  # same identity
    assert json.loads(before)["identity"] == json.loads((out / "run.json").read_text())["identity"]
    assert evalkit("run", path, "--out", out, "--set", "engine.keep=1") == 2
    assert "engine.keep was 2, is 1" in capsys.readouterr().err
    assert evalkit("compare", out, "--baseline", "all") == 0
    assert evalkit("report", out) == 0
    assert "acme-evalkit" in (out / "report.html").read_text()
    assert evalkit("report", out, "--layout", "retention", "--out", tmp_path / "table.md") == 0
    assert "Echoes" in (tmp_path / "table.md").read_text()
    assert evalkit("export", "model_card", out, "--out", tmp_path / "cards") == 0
    assert "type: accuracy" in (tmp_path / "cards" / "all" / "model-index.yaml").read_text()


def test_the_records_outlive_the_package(recipe, tmp_path, capsys):
    folder = guests.write(tmp_path / "site", "acme-evalkit", MODULES, ENTRIES, "1.2")
    out = tmp_path / "run"
    with guests.installed(folder):
        assert evalkit("run", recipe(), "--out", out) == 0
    assert evalkit("compare", out) == 0
    assert evalkit("export", "model_card", out, "--out", tmp_path / "cards") == 0
    capsys.readouterr()
    assert evalkit("score", out) == 2
    assert "unknown metric prefix; " in capsys.readouterr().err


def test_its_import_format_and_scorer(install, tmp_path):
    install()
    source, out = tmp_path / "answers.csv", tmp_path / "run"
    source.write_text("apple,apple\npear,pe\n")
    assert evalkit("import", "acme_csv", source, "--arm", "theirs", "--out", out) == 0
    rows = RunStore(out).read_scores("theirs").values()
    assert [row.score for row in rows] == [1, 0.5]
    assert environment(out)["guests"] == {"acme-evalkit": "1.2"}


def test_an_imported_arm_keeps_its_package_when_a_run_goes_on(install, recipe, tmp_path):
    install()
    out = tmp_path / "run"
    plain = recipe(ORDINARY)
    assert evalkit("run", plain, "--out", out) == 0
    source = tmp_path / "answers.csv"
    source.write_text("apple,apple\n")
    arguments = ("--arm", "theirs", "--out", out, "--allow-partial")
    assert evalkit("import", "acme_csv", source, *arguments) == 0
    assert evalkit("run", plain, "--out", out) == 0  # the arm that shares no sample is left out
    assert environment(out)["guests"] == {"acme-evalkit": "1.2"}


def test_records_without_its_things_are_the_same_bytes(install, recipe, tmp_path):
    path = recipe(ORDINARY)

    def records(out):
        assert evalkit("run", path, "--out", out) == 0
        of_this_process = re.compile(rb'"(seconds|started|command)"')
        return {
            p.relative_to(out): b"".join(
                line for line in p.read_bytes().splitlines(True) if not of_this_process.search(line)
            )
            for p in sorted(out.rglob("*.json*"))
        }

    without = records(tmp_path / "without")
    install()
    assert records(tmp_path / "with") == without


def test_keys_and_kinds_of_a_package_have_the_same_hints(install, recipe, tmp_path, capsys):
    install()
    path = recipe()
    for change, words in (
        ('tasks.0.wrods=["a"]', "unknown key tasks.0.wrods; did you mean words?"),
        ("tasks.0.words=3", "tasks.0.words: not a list, got 3"),
        ("engine.kep=3", "unknown key engine.kep; did you mean keep?"),
        ("engine.kind=parot", "engine: unknown kind of engine parot; did you mean parrot?"),
        ("tasks.0.kind=ecko", "tasks.0: unknown kind of task ecko; did you mean echo?"),
    ):
        assert evalkit("run", path, "--out", tmp_path / "run", "--set", change) == 2
        assert words in capsys.readouterr().err


def changed(module, old, new):
    """The package with one line of a module changed."""
    text = MODULES[f"acme/{module}.py"]
    assert old in text
    return {f"acme/{module}.py": text.replace(old, new)}


ZERO = "ZeroDivisionError: division by zero"
SPOILT = {
    "no import": (
        changed("task", "from typing", "import acme_is_not_here\nfrom typing"),
        "acme_is",
    ),
    "build raises": (changed("task", "[EchoTask(config)]", "1 / 0"), ZERO),
    "build gives none": (changed("task", "[EchoTask(config)]", "[3]"), "built a int, which is no"),
    "a name raises": (changed("task", "return f", "return 1 / 0, f"), ZERO),
    "a sample raises": (changed("task", "word = self", "word = 1 / 0 or self"), ZERO),
    "no sample": (changed("task", "return Sample(", "return dict("), "sample 0 is no Sample"),
    "another cell": (changed("task", "task=self.name", 'task="x"'), "sample 0 is no Sample"),
    "other kind": (changed("task", 'Literal["echo"] = "echo"', 'Literal["e"] = "e"'), "kind e:"),
    "no config": (changed("task", "config=EchoConfig", "config=dict"), "config must be a subclass"),
    "score raises": (changed("scorer", "same = 0", "same = 1 / 0"), ZERO),
    "score is none": (changed("scorer", "return same / len(word)", "return None"), "gave None"),
    "score above 1": (
        changed("scorer", "return same /", "return 2 + same /"),
        "gave 3.0, not a num",
    ),
    "no metric": (
        changed("scorer", "plain(prefix", "dict(a=prefix"),
        "of the type dict, not Metric",
    ),
    "no engine": (changed("engine", "def native", "def other"), "Parrot, which lacks some"),
    "opening raises": (changed("engine", "self.config = config", "1 / 0"), ZERO),
    "loading raises": (changed("engine", 'return {"weights_', '1 / 0\n        {"weights_'), ZERO),
    "no facts": (changed("engine", 'return {"weights_', '{"weights_'), "load returns no facts"),
    "answer raises": (changed("engine", "word = prompt", "word = 1 / 0 or prompt"), ZERO),
    "answer of nobody": (
        changed("engine", "Completion(prompt.sample.id", 'Completion("x"'),
        "asked",
    ),
    "no completion": (changed("engine", "yield [Completion(", "yield [dict(a="), "SyntaxError"),
    "no verdict": (changed("engine", 'return {"verdict"', '{"verdict"'), "returns no verdict"),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_a_fault_in_a_run_is_one_line_with_the_package(fault, install, recipe, tmp_path, capsys):
    modules, words = SPOILT[fault]
    install(modules)
    assert evalkit("run", recipe(), "--out", tmp_path / "run") == 2
    one_line(capsys, words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "from evalkit.importers import",
            "import acme_is_not_here\nfrom evalkit.importers import",
            "n",
        ),
        ("def read(path, predictions):", "def read(path, predictions):\n    1 / 0", ZERO),
        ("def read(path, predictions):", "def read(path):", "TypeError"),
        (
            "FORMAT = ImportFormat(read)",
            "FORMAT = read",
            "is of the type function, not ImportFormat",
        ),
        ("Prediction(", "dict(a=", "SyntaxError"),
        ("predictions.add(Prediction(", "predictions.add(3 or Prediction(", "AttributeError"),
    ],
)
def test_a_fault_of_a_format_is_one_line_with_the_package(
    old, new, words, install, tmp_path, capsys
):
    install(changed("importer", old, new))
    source = tmp_path / "answers.csv"
    source.write_text("apple,apple\n")
    assert evalkit("import", "acme_csv", source, "--arm", "a", "--out", tmp_path / "run") == 2
    one_line(capsys, words)


CLASHES = {
    "evalkit.tasks": {"graphwalk": "acme.task:KIND"},
    "evalkit.scorers": {"set_f1": "acme.scorer:METRIC"},
    "evalkit.engines": {"oracle": "acme.engine:KIND"},
}


@pytest.mark.parametrize("group", CLASHES)
def test_a_name_of_ours_is_refused_where_it_is_used(group, install, recipe, tmp_path, capsys):
    install(entries={group: CLASHES[group]})
    assert evalkit("run", recipe(ORDINARY), "--out", tmp_path / "run") == 2
    (name,) = CLASHES[group]
    one_line(capsys, f"{name}, which is one of evalkit's own")


def test_an_import_format_of_ours_is_refused_where_it_is_used(install, tmp_path, capsys):
    install(entries={"evalkit.importers": {"ruler": "acme.importer:FORMAT"}})
    assert evalkit("import", "ruler", tmp_path, "--arm", "a", "--out", tmp_path / "run") == 2
    one_line(capsys, "the format ruler, which is one of evalkit's own")


def test_a_name_of_two_packages_is_refused_with_both(install, recipe, tmp_path, capsys):
    install()
    other = guests.write(
        tmp_path / "other", "echoes", {}, {"evalkit.tasks": {"echo": "nowhere:KIND"}}
    )
    with guests.installed(other):
        assert evalkit("run", recipe(), "--out", tmp_path / "run") == 2
        one_line(capsys, "echoes 1.0", "both add echo to evalkit.tasks")


BROKEN = {group: {"broken": "acme_is_not_here:X"} for group in ENTRIES} | {
    "evalkit.tasks": {"broken": "acme_is_not_here:X", "needle": "acme.task:KIND"}
}


def test_a_broken_package_stops_nothing_that_does_not_use_it(install, recipe, tmp_path, capsys):
    install(entries=BROKEN)
    out, source = tmp_path / "run", tmp_path / "needle.json"
    assert evalkit("run", recipe(ORDINARY), "--out", out) == 0
    assert evalkit("compare", out) == 0
    assert evalkit("report", out) == 0
    assert evalkit("export", "lm_eval", out, "--out", tmp_path / "x") == 0
    source.write_text(
        json.dumps(
            {
                "context_length": 10,
                "depth_percent": 50,
                "needle": "a red apple",
                "model_response": "a red apple",
                "model": "m",
            }
        )
    )
    arguments = ("--arm", "a", "--out", tmp_path / "imported")
    assert evalkit("import", "needle_kamradt", source, *arguments) == 0
    assert evalkit("data", "show", "graphwalk") == 0
    capsys.readouterr()
    assert evalkit("tasks") == 0
    lines = capsys.readouterr().out.splitlines()
    faults = {line.split()[0]: line for line in lines if "not usable" in line}
    assert set(faults) == {"broken", "needle"}
    assert "No module named 'acme_is_not_here'" in faults["broken"]
    assert "one of evalkit's own" in faults["needle"]
    assert all(line.endswith("[acme-evalkit 1.2]") for line in faults.values())


def test_descriptions_that_raise_are_told_where_tasks_are_listed(install, capsys):
    install(changed("task", '{"echo": "a word said again"}', "1 / 0"))
    assert evalkit("tasks") == 0
    printed = capsys.readouterr().out
    assert "not usable: division by zero  [acme-evalkit 1.2]" in printed
    assert "niah_single_1" in printed


def test_the_command_finds_what_is_installed(recipe, tmp_path):
    folder = guests.write(tmp_path / "site", "acme-evalkit", MODULES, ENTRIES, "1.2")
    done = subprocess.run(
        [sys.executable, "-m", "evalkit.cli", "run", str(recipe()), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{folder}", "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert environment(tmp_path / "run")["guests"] == {"acme-evalkit": "1.2"}
