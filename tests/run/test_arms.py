"""Arms are taken out of a run directory, or called otherwise; the rest stays what it was."""

import json

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.importers import import_predictions
from evalkit.run.arms import remove_arm, rename_arm
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.importers.files import lines, qa

RECIPE = """
model = "{model}"
[engine]
kind = "oracle"
[compare]
baseline = "full"
[[tasks]]
kind = "graphwalk"
lengths = [4096]
samples = 3
"""
ARMS = '[[arms]]\nname = "full"\n[[arms]]\nname = "1/2"\n'


@pytest.fixture
def imported(tmp_path):
    store = RunStore(tmp_path / "imported")
    rows = [qa(i) for i in range(4)]
    for arm, task in (("full", "qasper"), ("1/4", "qasper"), ("other", "musique")):
        path = lines(tmp_path / arm / f"{task}.jsonl", rows)
        import_predictions("longbench", path, arm, store, allow_partial=True)
    score_run(store)
    return store


def test_an_imported_arm_goes_with_the_samples_that_it_alone_has(imported):
    remove_arm(imported, "other")
    run = imported.read_run()
    assert run.names == ["full", "1/4"]
    assert [(task.name, task.samples) for task in run.tasks] == [("longbench/qasper", 4)]
    assert {item.task for item in imported.read_items().values()} == {"longbench/qasper"}
    assert not imported.arm_dir("other").exists()
    remove_arm(imported, "full")
    assert len(imported.read_items()) == 4
    with pytest.raises(EvalkitError, match="the only arm"):
        remove_arm(imported, "1/4")


def test_an_arm_under_another_name(imported):
    before = imported.read_samples("1/4"), imported.read_scores("1/4")
    rename_arm(imported, "1/4", "quarter")
    assert imported.read_run().names == ["full", "quarter", "other"]
    assert (imported.read_samples("quarter"), imported.read_scores("quarter")) == before
    assert not imported.arm_dir("1/4").exists()
    with pytest.raises(EvalkitError, match="an arm full already"):
        rename_arm(imported, "quarter", "full")
    with pytest.raises(EvalkitError, match=r"no arm quartre; did you mean quarter\?"):
        rename_arm(imported, "quartre", "x")


def test_a_run_of_our_own_goes_on_without_or_under_the_new_name(tmp_path, checkpoint):
    recipe, out = tmp_path / "r.toml", tmp_path / "run"
    recipe.write_text(RECIPE.format(model=checkpoint) + ARMS, encoding="utf-8")
    assert evalkit("run", recipe, "--out", out) == 0
    store = RunStore(out)
    rename_arm(store, "full", "all")
    new = (RECIPE.format(model=checkpoint) + ARMS).replace('"full"', '"all"')
    recipe.write_text(new, encoding="utf-8")
    answers = store.arm_dir("all") / "samples.jsonl"
    stamp = answers.read_bytes()
    assert evalkit("run", recipe, "--out", out) == 0
    assert answers.read_bytes() == stamp
    assert json.loads((out / "compare.json").read_text())["baseline"] == "all"
    remove_arm(store, "1/2")
    recipe.write_text(new.replace('[[arms]]\nname = "1/2"\n', ""), encoding="utf-8")
    assert evalkit("run", recipe, "--out", out) == 0
    assert store.read_run().names == ["all"]


def test_the_command(imported, capsys):
    assert evalkit("arms", "list", imported.path) == 0
    shown = capsys.readouterr().out
    assert "imported (longbench): musique.jsonl" in shown
    assert "4 of 8" in shown
    assert evalkit("arms", "rename", imported.path, "1/4", "quarter") == 0
    assert evalkit("arms", "remove", imported.path, "other") == 0
    assert imported.read_run().names == ["full", "quarter"]
    assert evalkit("arms", "remove", imported.path, "otter") == 2
    assert "no arm otter" in capsys.readouterr().err
