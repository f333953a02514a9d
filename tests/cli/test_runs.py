"""`evalkit runs`: what lies below a folder."""

import json
import os
import shutil

import pytest

from evalkit.analysis.run_list import list_runs
from evalkit.run.store import RunStore
from tests.command import evalkit

RECIPE = """
model = "{model}"
[engine]
kind = "oracle"
corrupt = {{ "1/4" = 1.0 }}
[[tasks]]
kind = "graphwalk"
lengths = [2048]
operations = ["parents"]
samples = 40
[[arms]]
name = "full"
[[arms]]
name = "full again"
[[arms]]
name = "1/4"
[[arms]]
name = "1/2"
[compare]
repeat_of_baseline = "full again"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, checkpoint):
    """Two runs, one of them in a folder of its own and cut short, and one that is damaged."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(model=checkpoint), encoding="utf-8")
    for place in ("first", "deep/second"):
        assert evalkit("run", recipe, "--out", folder / place) == 0
    samples = RunStore(folder / "deep/second").arm_dir("1/2") / "samples.jsonl"
    samples.write_text("".join(samples.read_text().splitlines(keepends=True)[:7]))
    (folder / "deep/second/compare.json").unlink()
    (folder / "broken").mkdir()
    (folder / "broken/run.json").write_text("{")
    for age, name in enumerate(("broken", "first", "deep/second")):
        for path in (folder / name).rglob("*"):
            os.utime(path, (1e9 + age, 1e9 + age))
    return folder


def test_every_run_is_found_with_its_verdicts_and_what_is_left(folder, checkpoint):
    broken, first, second = list_runs(folder)
    assert (broken.path, broken.finished) == (folder / "broken", False)
    assert "run.json: damaged" in broken.fault
    assert first.path == folder / "first"
    assert first.models == second.models == (checkpoint.name,)
    assert dict(first.verdicts)["1/4"] == "worse"
    assert set(dict(first.verdicts)) == {"1/4", "1/2"}
    assert (first.answered, first.planned, first.finished) == (160, 160, True)
    assert (second.answered, second.planned, second.finished) == (127, 160, False)
    assert second.verdicts == ()


def test_the_command_prints_a_line_for_each(folder, capsys, tmp_path):
    assert evalkit("runs", folder) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line[0] for line in lines[3:]] == ["broken", "first", "deep/second"]
    assert lines[4][-1] == "finished"
    assert lines[5][-4:] == ["unfinished,", "127", "of", "160"]
    assert evalkit("runs", tmp_path) == 0
    assert "no run directory" in capsys.readouterr().out
    assert evalkit("runs", tmp_path / "gone") == 2
    assert "gone: no such folder" in capsys.readouterr().err


def test_a_failed_answer_is_none(folder):
    samples = RunStore(folder / "first").arm_dir("1/2") / "samples.jsonl"
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    rows[0] |= {"finish_reason": "error", "error": "no route"}
    before = samples.read_text()
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run,) = [run for run in list_runs(folder) if run.path.name == "first"]
    samples.write_text(before)
    assert (run.answered, run.finished) == (159, False)


def test_arms_that_were_taken_out_have_no_verdict_any_more(folder, tmp_path, capsys):
    place = shutil.copytree(folder / "first", tmp_path / "runs" / "first")
    for arm in ("1/2", "1/4"):
        assert evalkit("arms", "remove", place, arm) == 0
        (run,) = list_runs(tmp_path / "runs")
        assert set(dict(run.verdicts)) == ({"1/4"} if arm == "1/2" else set())
    capsys.readouterr()
    assert evalkit("runs", tmp_path / "runs") == 0
    assert capsys.readouterr().out.split()[-2:] == ["none", "finished"]
