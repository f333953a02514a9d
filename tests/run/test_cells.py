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
seed = {seed}
[[arms]]
name = "full"
[[arms]]
name = "1/2"
"""


@pytest.fixture
def run(tmp_path, checkpoint):
    def call(lengths, operations=("parents",), samples=3, out="run", seed=1, flags=()):
        recipe = tmp_path / "recipe.toml"
        text = RECIPE.format(
            model=checkpoint,
            lengths=json.dumps(lengths),
            operations=json.dumps(operations),
            samples=samples,
            seed=seed,
        )
        recipe.write_text(text, encoding="utf-8")
        return evalkit("run", recipe, "--out", tmp_path / out, *flags)

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
    assert run([2048, 4096], seed=9) == 2
    assert "task graphwalk_parents@4096.seed was 1, is 9" in capsys.readouterr().err
    assert run([2048], seed=9) == 2
    assert "task graphwalk_parents@2048.seed was 1, is 9" in capsys.readouterr().err
    assert run([3000], seed=9) == 0


# -- samples --------------------------------------------------------------------------------------


def fresh_scores(run, tmp_path, samples):
    assert run([2048, 4096], samples=samples, out="whole") == 0
    return {arm: RunStore(tmp_path / "whole").read_scores(arm) for arm in ("full", "1/2")}


def unescaped(store):
    return (store.path / "report.md").read_text().replace("\\_", "_")


@pytest.mark.parametrize("how", ["samples", "limit"])
def test_samples_are_added_and_nothing_is_asked_again(run, tmp_path, capsys, how):
    store = RunStore(tmp_path / "run")
    if how == "samples":
        assert run([2048, 4096], samples=2) == 0
    else:
        assert run([2048, 4096], samples=5, flags=("--limit", 2)) == 0
    assert run([2048, 4096], samples=5) == 0
    assert [task.samples for task in store.read_run().tasks] == [5, 5]
    assert set(asked(store).values()) == {5}
    fresh = fresh_scores(run, tmp_path, 5)
    assert {arm: store.read_scores(arm) for arm in fresh} == fresh
    assert "samples were added after a table was made" in capsys.readouterr().out
    looks = "graphwalk_parents@2048 (2, then 5), graphwalk_parents@4096 (2, then 5)"
    assert looks in unescaped(store)
    assert json.loads((store.path / "compare.json").read_text())["unfinished"] == {}
    assert run([2048, 4096], samples=6) == 0
    assert "graphwalk_parents@2048 (2, then 5, then 6)" in unescaped(store)


def test_samples_that_were_answered_are_not_taken_away(run, tmp_path, capsys):
    store = RunStore(tmp_path / "run")
    assert run([2048, 4096], samples=4) == 0
    before = store.read_run()
    says = "task graphwalk_parents@4096 has answers to 4 samples, 3 are asked (samples may be added"
    assert run([2048, 4096], samples=3) == 2
    assert says in capsys.readouterr().err
    assert run([2048, 4096], samples=4, flags=("--limit", 3)) == 2
    assert says in capsys.readouterr().err
    assert run([2048], samples=4) == 0
    assert run([2048, 4096], samples=3) == 2  # answered, though the cell was out
    assert says in capsys.readouterr().err
    assert run([2048, 4096], samples=4) == 0
    assert store.read_run().identity == before.identity


def test_samples_nobody_has_answered_may_be_fewer(run, tmp_path):
    store = RunStore(tmp_path / "run")
    assert run([2048], samples=3) == 0
    for name in ("full", "1/2"):
        path = store.arm_dir(name) / "samples.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    (store.path / "items.jsonl").write_text(
        (store.path / "items.jsonl").read_text().splitlines(keepends=True)[0]
    )
    assert run([2048], samples=2) == 0
    assert set(asked(store).values()) == {2}


def test_a_run_without_a_table_counts_as_one_look(run, tmp_path, capsys):
    assert run([2048], samples=2) == 0
    (tmp_path / "run" / "compare.json").unlink()
    assert run([2048], samples=3) == 0
    assert "samples were added" not in capsys.readouterr().out


def test_an_order_of_drawing_is_for_the_samples_there_were(run, tmp_path, capsys):
    flags = ("--until-decided",)
    assert run([2048], samples=3, flags=flags) == 0
    assert run([2048], samples=4, flags=flags) == 2
    assert "had 3 samples, 4 are asked (arms stopped early" in capsys.readouterr().err


def test_directories_of_an_earlier_version_grow_too(run, tmp_path):
    """They hold the number of samples among what binds a cell."""
    store = RunStore(tmp_path / "run")
    assert run([2048], samples=2) == 0
    data = json.loads((store.path / "run.json").read_text())
    for section in data["cells"].values():
        section["samples"] = 2
    (store.path / "run.json").write_text(json.dumps(data))
    assert run([2048], samples=3) == 0
    assert set(asked(store).values()) == {3}
