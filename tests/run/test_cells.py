"""What does not fit is known before the first answer; cells come and go as arms do."""

import json

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.analysis.run_list import list_runs
from evalkit.run.current_scores import current_scores
from evalkit.run.merge import open_runs
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.servers.fake import FakeServer

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


@pytest.mark.parametrize("how", ["samples", "limit"])
def test_samples_are_taken_out_and_come_back(run, tmp_path, capsys, how):
    store = RunStore(tmp_path / "run")
    assert run([2048, 4096], samples=5) == 0
    first = (store.path / "compare.json").read_text()
    fewer = {"samples": 3} if how == "samples" else {"samples": 5, "flags": ("--limit", 3)}
    capsys.readouterr()
    for _ in range(2):  # the second time it was so before
        assert run([2048, 4096], **fewer) == 0
        says = "3 of 5 answered samples are compared: samples were taken out after they were"
        assert f"graphwalk_parents@2048, graphwalk_parents@4096: {says}" in unescaped(store)
        assert "by task" in unescaped(store)
        title = "3 of 5 answered samples of graphwalk_parents@2048, graphwalk_parents@4096"
        assert title in " ".join(capsys.readouterr().out.split())
        compared = json.loads((store.path / "compare.json").read_text())
        assert compared["taken_out"] == {task: [3, 5] for task in compared["taken_out"]}
        assert len(compared["taken_out"]) == 2
        assert compared["unfinished"] == {}
        assert {row["n"] for row in compared["rows"]} == {3, 6}
        assert set(asked(store).values()) == {5}
    fresh = fresh_scores(run, tmp_path, 3)
    assert {arm: current_scores(store)[arm].scores for arm in fresh} == fresh
    assert list_runs(store.path)[0].finished
    assert run([2048, 4096], samples=5) == 0
    assert set(asked(store).values()) == {5}
    assert (store.path / "compare.json").read_text() == first
    assert "taken out" not in unescaped(store)
    assert [task.looks for task in store.read_run().tasks] == [(), ()]


def test_every_export_says_that_samples_were_taken_out(run, tmp_path):
    out, store = tmp_path / "out", RunStore(tmp_path / "run")
    assert run([2048], samples=5) == 0
    assert run([2048], samples=3) == 0
    assert evalkit("export", "lm_eval", store.path, "--out", out) == 0
    logs = list(out.rglob("samples_*.jsonl"))
    assert {len(log.read_text().splitlines()) for log in logs} == {3}
    counts = json.loads(next(out.rglob("results_*.json")).read_text())["n-samples"]
    assert list(counts.values()) == [{"original": 5, "effective": 3}]
    assert evalkit("export", "model_card", store.path, "--out", out) == 0
    assert "taken_out_after_they_were_answered: 2" in next(out.rglob("*index.yaml")).read_text()
    assert evalkit("report", store.path) == 0
    assert "taken out after they were answered" in (store.path / "report.html").read_text()
    assert evalkit("report", store.path, "--public", "--out", tmp_path / "public") == 0
    told = json.loads((tmp_path / "public" / "evidence.json").read_text())
    assert told["taken_out"] == {"graphwalk_parents@2048": [3, 5]}
    assert "3 of 5 answered samples" in (tmp_path / "public" / "retention.md").read_text()


def test_a_cell_that_comes_back_with_fewer_samples_says_so(run, tmp_path):
    store = RunStore(tmp_path / "run")
    assert run([2048, 4096], samples=4) == 0
    assert run([2048], samples=4) == 0
    assert run([2048, 4096], samples=3) == 0
    assert store.read_run().reduced == {
        "graphwalk_parents@2048": (3, 4),
        "graphwalk_parents@4096": (3, 4),
    }


def test_what_an_arm_lacks_of_the_samples_left_is_answered(run, tmp_path):
    """An arm that was interrupted has answers beyond the samples left, and lacks one of them."""
    store = RunStore(tmp_path / "run")
    assert run([2048], samples=4) == 0
    path = store.arm_dir("1/2") / "samples.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"graphwalk_parents@2048/1"' not in line))
    assert run([2048], samples=2) == 0
    assert set(asked(store).values()) == {4}
    assert json.loads((store.path / "compare.json").read_text())["unfinished"] == {}


@pytest.mark.parametrize("first", ["run", "other"])
def test_of_merged_runs_the_one_with_samples_taken_out_binds(run, tmp_path, first):
    assert run([2048], samples=5) == 0
    assert run([2048], samples=3) == 0
    assert run([2048], samples=3, out="other") == 0
    names = [first, "other" if first == "run" else "run"]
    compared = compare_run(open_runs([tmp_path / name for name in names]))
    assert compared.taken == {"graphwalk_parents@2048": (3, 5)}
    assert compared.unfinished == {}
    assert {row.n for row in compared.result.rows} == {3}


def test_more_samples_than_were_ever_answered_say_how_many_there_were(run, tmp_path):
    store = RunStore(tmp_path / "run")
    assert run([2048], samples=4) == 0
    assert run([2048], samples=3) == 0
    assert run([2048], samples=6) == 0
    assert "graphwalk_parents@2048 (4, then 6)" in unescaped(store)
    assert store.read_run().reduced == {}


def test_stopping_when_decided_and_taking_samples_out_do_not_go_together(run, tmp_path, capsys):
    assert run([2048], samples=4) == 0
    assert run([2048], samples=3, flags=("--until-decided",)) == 2
    assert "has answers to 4 samples, 3 are asked" in capsys.readouterr().err
    assert run([2048], samples=4, out="early", flags=("--until-decided",)) == 0
    assert run([2048], samples=3, out="early") == 2
    assert "had 4 samples, 3 are asked (arms stopped early" in capsys.readouterr().err


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


def test_answers_to_samples_that_are_out_do_not_stand_for_those_that_lack(
    paper_checkpoint, tmp_path, capsys
):
    """A server is asked for its schedule before an arm answers, however much lies there unread."""
    text = (
        f'model = "{paper_checkpoint}"\n[engine]\nkind = "openai_server"\nprobe_prompts = 0\n'
        '[[tasks]]\nkind = "graphwalk"\nlengths = [2048]\noperations = ["parents"]\n'
        'samples = 4\n[[arms]]\nname = "full"\n'
    )
    recipe, out = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(text, encoding="utf-8")
    with FakeServer(model="model") as server, FakeServer(model="another") as other:
        asks = ("run", recipe, "--out", out, "--set")
        assert evalkit(*asks, f'engine.urls=["{server.url}"]') == 0
        path = RunStore(out).arm_dir("full") / "samples.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[2:]))
        recipe.write_text(text.replace("samples = 4", "samples = 2"), encoding="utf-8")
        assert evalkit(*asks, f'engine.urls=["{other.url}"]') == 2
        assert "arm full: not engaged" in capsys.readouterr().err
        assert evalkit(*asks, f'engine.urls=["{server.url}"]') == 0
        assert len(RunStore(out).read_samples("full")) == 4
