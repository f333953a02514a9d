"""What does not fit is known before the first answer; cells come and go as arms do."""

import json

import pytest

from evalkit.run.store import RunStore
from tests.command import evalkit

RECIPE = """
model = "{model}"
[engine]
kind = "oracle"
[[tasks]]
kind = "graphwalk"
lengths = {lengths}
operations = {operations}
samples = {samples}
[[arms]]
name = "full"
[[arms]]
name = "1/2"
"""


@pytest.fixture
def run(tmp_path, checkpoint):
    def call(lengths, operations=("parents",), samples=3, out="run"):
        recipe = tmp_path / "recipe.toml"
        text = RECIPE.format(
            model=checkpoint,
            lengths=json.dumps(lengths),
            operations=json.dumps(operations),
            samples=samples,
        )
        recipe.write_text(text, encoding="utf-8")
        return evalkit("run", recipe, "--out", tmp_path / out)

    return call


def asked(store):
    """Lines of samples.jsonl by arm and cell: an answer that is asked again is a line more."""
    counts = {}
    for path in sorted(store.path.glob("arms/*/samples.jsonl")):
        for line in path.read_text().splitlines():
            key = path.parent.name[:4], json.loads(line)["task"]
            counts[key] = counts.get(key, 0) + 1
    return counts


def test_a_cell_that_does_not_fit_is_said_before_the_first_answer(run, tmp_path, capsys):
    """The last of three cells is too short: no other is answered, and the length is right."""
    assert run([4096, 2048, 64]) == 2
    said = capsys.readouterr().err
    assert "nothing was asked yet: graphwalk_parents@64: too short for this task" in said
    assert not RunStore(tmp_path / "run").answered
    smallest = int(said.partition("it fits from length ")[2].split()[0])
    assert run([smallest - 1], samples=1) == 2
    assert run([smallest], samples=1) == 0


def test_every_cell_that_does_not_fit_is_named(run, capsys):
    assert run([64, 65, 4096]) == 2
    said = capsys.readouterr().err
    assert "graphwalk_parents@64" in said
    assert "graphwalk_parents@65" in said


def test_cells_are_added_and_removed_and_nothing_is_asked_again(run, tmp_path):
    store = RunStore(tmp_path / "run")
    assert run([2048, 4096]) == 0
    assert run([4096]) == 0
    assert [task.name for task in store.read_run().tasks] == ["graphwalk_parents@4096"]
    compared = json.loads((store.path / "compare.json").read_text())
    assert {row["task"] for row in compared["rows"]} == {"graphwalk_parents@4096", "macro"}
    assert compared["unfinished"] == {}
    assert {item.task for item in store.read_items().values()} == {"graphwalk_parents@4096"}
    assert run([4096, 3000], ("parents", "frontier")) == 0
    assert run([2048, 4096]) == 0
    assert [task.samples for task in store.read_run().tasks] == [3, 3]
    assert set(asked(store).values()) == {3}
    assert len(asked(store)) == 2 * 5
    whole = tmp_path / "whole"
    assert run([2048, 4096], out="whole") == 0
    for arm in ("full", "1/2"):
        ours, fresh = store.read_scores(arm), RunStore(whole).read_scores(arm)
        assert {i: row.score for i, row in ours.items()} == {
            i: row.score for i, row in fresh.items()
        }


def test_a_cell_that_comes_back_must_be_what_it_was(run, tmp_path, capsys):
    assert run([2048, 4096]) == 0
    assert run([4096]) == 0
    assert run([2048, 4096], samples=2) == 2
    assert "task graphwalk_parents@4096.samples was 3, is 2" in capsys.readouterr().err
    assert run([2048], samples=2) == 2
    assert "task graphwalk_parents@2048.samples was 3, is 2" in capsys.readouterr().err
    assert run([3000], samples=2) == 0
