"""The command line on a random model: data, oracle, train, evaluation, refusals of one line."""

from __future__ import annotations

import json
import re
import sys

import pytest
from accelerate import tracking
from accelerate.utils import LoggerType
from safetensors.torch import load_file

from evalkit.dsa import ReuseSchedule
from evalkit.dsa.indexer_checkpoint import read_schedule
from tests.distill.cli.commands import distill, write_recipe
from tests.paths import ROOT

EVALUATION = """
model = "unused"
[engine]
kind = "hf"
dtype = "float32"
[[tasks]]
kind = "needle"
lengths = [96]
depths = [50]
repeats = 3
haystacks = 1
value_digits = 4
key_adjectives = ["brave", "calm", "eager", "fancy", "giant", "happy"]
key_nouns = ["apple", "arrow", "badge", "banjo", "barrel", "basket"]
max_new_tokens = 4
[[arms]]
name = "replaced by distill"
"""


@pytest.fixture
def recipe(tmp_path, checkpoint):
    return write_recipe(tmp_path, checkpoint)


@pytest.fixture
def evaluated(tmp_path, checkpoint):
    """A recipe that names its evaluation."""
    (tmp_path / "evaluation.toml").write_text(EVALUATION)
    return write_recipe(tmp_path, checkpoint, 'evaluation = "evaluation.toml"')


def test_train_leaves_an_arm_and_a_card_and_says_how_to_go_on(evaluated, tmp_path, capsys):
    out = tmp_path / "run"
    assert distill("train", evaluated, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "arm FSSSFSSS: the indexers of layers 4 train" in printed
    assert "layer 4 from" in printed
    assert "retention 1/4 is mild: distillation was neutral to harmful there" in printed
    assert "recall of the consumers' top-k" in printed
    assert "evaluate with --evaluate" in printed
    assert read_schedule(out / "indexer") == ReuseSchedule.uniform(8, "1/4")
    tensors = load_file(out / "indexer" / "indexer.safetensors")
    assert {name.split(".")[2] for name in tensors} == {"4"}
    assert (out / "indexer" / "indexer.safetensors").stat().st_mode & 0o044
    card = (out / "indexer" / "README.md").read_text()
    assert "positions weighted as the choice does" in card + printed
    assert re.search(r"0 of \d+ documents left out because they repeat a passage", card)
    for words in ("license: apache-2.0", "layers 4.", "## Held-out metrics", '"steps": 2'):
        assert words in card
    assert distill("train", evaluated, "--out", out) == 0
    assert "resumed at step 2" in capsys.readouterr().out


def test_the_cliff_brings_no_warning(recipe, tmp_path, capsys):
    changes = ("--set", 'arm.retention="1/8"', "--set", "student.first_layer=train")
    assert distill("train", recipe, "--out", tmp_path / "run", *changes) in (0, 4)
    assert "warning" not in capsys.readouterr().out


@pytest.mark.slow
def test_evaluation_compares_the_arm_with_its_undistilled_twin(evaluated, tmp_path, monkeypatch):
    out = tmp_path / "run"
    assert distill("train", evaluated, "--out", out, "--evaluate", "--save-anyway") == 0
    rows = json.loads((out / "evaluation" / "compare.json").read_text())["rows"]
    arms = ["baseline", "baseline again (A/A)", "undistilled", "distilled"]
    assert list(dict.fromkeys(row["arm"] for row in rows)) == arms
    run = json.loads((out / "evaluation" / "run.json").read_text())
    assert run["arms"][2]["schedule"] == run["arms"][3]["schedule"]
    assert run["arms"][3]["indexer_sha256"]


def test_data_says_what_was_taken(recipe, tmp_path, capsys):
    assert distill("data", recipe, "--out", tmp_path / "run") == 0
    printed = capsys.readouterr().out
    for words in ("calibration: 2 sequences", "held_out: 2 sequences", "train: 4 sequences"):
        assert words in printed
    assert "tokenizer sha256" in printed


def test_oracle_prints_the_bound_before_anything_is_trained(recipe, tmp_path, capsys):
    assert distill("oracle", recipe, "--out", tmp_path / "run", "--each") == 0
    printed = capsys.readouterr().out
    assert "oracle selections under FSSSFSSS" in printed
    everywhere = ("of all consumers, first full layer as it is", "of all consumers, everywhere")
    for row in ("undistilled", *everywhere, "of layers "):
        assert row in printed
    assert not (tmp_path / "run" / "state").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train.step=3", "unknown key train.step; did you mean steps?"),
        ("arm.retention=2/3", "arm: "),
        ("model=./gone", "model ./gone: no such directory"),
        ("data.shortest=49", "data: shortest is 49, length 48: no sequence can be both"),
        ("data={length=8, shortest=4}", "every schedule is exact there; raise data.length"),
        ("evaluation=gone.toml", "gone.toml: no such recipe"),
        ('student.tensors=["wq"]', "no indexer tensor is called ['wq']"),
        ("teacher.kind=labels", "teacher.kind"),
        ('train.trackers=["nonsense"]', "train: Unsupported logging capability: nonsense"),
    ],
)
def test_user_errors_are_one_line_and_exit_code_two(recipe, tmp_path, capsys, change, words):
    assert distill("train", recipe, "--out", tmp_path / "run", "--set", change) == 2
    error = capsys.readouterr().err.splitlines()
    error = [line for line in error if line.startswith("distill: ")]
    assert len(error) == 1
    assert words in error[0]
    assert not (tmp_path / "run" / "state").exists()


@pytest.mark.parametrize("command", ["train", "layerwise"])
@pytest.mark.parametrize("measure", ["logit_kl", "recall"])
def test_indexers_that_gain_nothing_are_not_saved(recipe, tmp_path, capsys, command, measure):
    """Those that are worse, and those that are what came."""
    worse = "the undistilled arm is nearer to the original"
    for start in ("random", "own"):
        out = tmp_path / start
        changes = [f"student.start={start}", "train.steps=0", "arm={retention='1/2'}"]
        changes.append(f"choice.checkpoint={measure}")
        options = ["--out", out, *(word for change in changes for word in ("--set", change))]
        capsys.readouterr()
        assert distill(command, recipe, *options) == 4
        printed = capsys.readouterr()
        (line,) = [n for n in printed.err.splitlines() if n.startswith("distill: ")]
        assert line.startswith("distill: nothing gained: ")
        assert "no indexer saved" in line
        assert not (out / "indexer").exists()
        shown = " ".join(printed.out.split())
        assert "nothing gained" in shown
        assert distill(command, recipe, *options, "--save-anyway") == 0
        card = (out / "indexer" / "README.md").read_text()
        assert "nothing gained" in card
        if measure == "logit_kl":
            assert [worse in text for text in (shown, card)] == [start == "random"] * 2


def test_nothing_is_evaluated_where_nothing_was_gained(evaluated, tmp_path, monkeypatch):
    monkeypatch.setattr("distill.training.evaluation_recipe.run", lambda _: pytest.fail("run"))
    changes = ("--set", "student.start=own", "--set", "train.steps=0")
    assert distill("train", evaluated, "--out", tmp_path / "run", "--evaluate", *changes) == 4


def test_a_tracker_gets_every_number(recipe, tmp_path, monkeypatch):
    """A stand-in for trackio, which need not be installed."""
    seen, logged = [], []

    class Stand(tracking.GeneralTracker):
        name, requires_logging_directory = "trackio", False

        def __init__(self, run_name, **_):
            super().__init__()
            seen.append(("run", run_name))

        def start(self):
            seen.append(("start",))

        @property
        def tracker(self):
            return self

        def store_init_configuration(self, values):
            seen.append(("config", json.loads(values["recipe"])["train"]["steps"]))

        def log(self, values, step=None, **_):
            logged.append((step, values))

        def finish(self):
            seen.append(("end",))

    monkeypatch.setattr(tracking, "_available_trackers", [LoggerType.TRACKIO])
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "trackio", Stand)
    out = tmp_path / "run"
    assert distill("train", recipe, "--out", out, "--set", 'train.trackers=["trackio"]') == 0
    assert (seen[0], seen[-1]) == (("run", "distill"), ("end",))
    assert ("config", 2) in seen
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for kind, name in (("train", "kl"), ("evaluation", "recall")):
        key = f"{kind}/{name}"
        found = [(step, values[key]) for step, values in logged if key in values]
        assert found == [(row["step"], row[name]) for row in rows if row["kind"] == kind]
        assert len(found) >= 2


def test_a_tracker_that_is_not_installed_is_refused(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("accelerate.tracking.is_swanlab_available", lambda: False)
    change = 'train.trackers=["swanlab"]'
    with pytest.warns(UserWarning, match="no supported trackers"):
        assert distill("train", recipe, "--out", tmp_path / "run", "--set", change) == 2
    assert "train.trackers: swanlab is not installed" in capsys.readouterr().err


def test_the_generator_is_found_from_any_directory(recipe, tmp_path, monkeypatch):
    """The console script has no working directory on its path."""
    monkeypatch.chdir(tmp_path)
    root = str(ROOT)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", root)])
    for name in [n for n in sys.modules if n == "recipes" or n.startswith("recipes.")]:
        monkeypatch.delitem(sys.modules, name)
    assert distill("data", recipe, "--out", tmp_path / "run") == 0
