"""What is too long for a checkpoint or server is known before the first answer, and named."""

import json

import pytest

from evalkit.run import first_prompts
from evalkit.run.store import RunStore
from tests import checkpoints
from tests.command import evalkit
from tests.servers.fake import FakeServer
from tests.tasks.words import record, write_folder, write_prompts

HEAD = 'model = "{model}"\n[engine]\nkind = "hf"\ndtype = "float32"\n'
ARMS = '[[arms]]\nname = "baseline"\n[[arms]]\nname = "1/4"\nretention = "1/4"\n'
GRAPHS = """
[[tasks]]
kind = "graphwalk"
lengths = {lengths}
operations = ["parents"]
samples = 1
max_new_tokens = 4
"""
MINE = """
[[tasks]]
kind = "records"
name = "mine"
path = "mine.jsonl"
prompt = "{{text}}"
references = "gold"
metric = "substring_match"
max_new_tokens = 4
{more}
"""


@pytest.fixture
def write(tmp_path, checkpoint):
    def call(*tasks, arms=ARMS, head=HEAD, **places):
        path = tmp_path / "recipe.toml"
        text = head.format(model=checkpoint, **places) + "".join(tasks) + arms
        path.write_text(text, encoding="utf-8")
        return path

    return call


def graphs(*lengths):
    return GRAPHS.format(lengths=list(lengths))


def mine(tmp_path, words, more=""):
    rows = [{"text": "one " * count, "gold": "one"} for count in words]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return MINE.format(more=more)


def refusal(capsys):
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("evalkit: nothing was asked yet: ")
    return said


def answers(out):
    return sum(len(path.read_text().splitlines()) for path in out.glob("arms/*/samples.jsonl"))


def test_a_length_beyond_the_positions_is_refused_with_one_that_fits(write, tmp_path, capsys):
    out = tmp_path / "run"
    assert evalkit("run", write(graphs(1024, 1040, 2000)), "--out", out) == 2
    said = refusal(capsys)
    assert "too long for the 1024 positions of the checkpoint of arm baseline (checkpoint0)" in said
    for length in (1040, 2000):
        tokens = said.partition(f"graphwalk_parents@{length} (")[2].partition(" + 4 tokens)")[0]
        assert 1024 - 4 < int(tokens) <= length - 4
    assert "@1024" not in said
    assert said.endswith("; what fits: lengths up to 1024\n")
    assert not RunStore(out).answered
    assert evalkit("run", write(graphs(1024)), "--out", out) == 0
    assert answers(out) == 2


def test_a_run_that_was_begun_says_the_same_and_goes_on_without_it(write, tmp_path, capsys):
    out = tmp_path / "run"
    assert evalkit("run", write(graphs(1000)), "--out", out) == 0
    capsys.readouterr()
    assert evalkit("run", write(graphs(1000, 1100)), "--out", out) == 2
    assert "graphwalk_parents@1100" in refusal(capsys)
    assert evalkit("run", write(graphs(1000)), "--out", out) == 0
    assert answers(out) == 2


def test_a_run_of_an_earlier_version_says_it_too(write, tmp_path, capsys, monkeypatch):
    """Its answers are errors, which would be tried again; its table can still be made."""
    out, recipe = tmp_path / "run", write(graphs(1000, 1100))
    with monkeypatch.context() as earlier:
        earlier.setattr(first_prompts, "_too_long", lambda *_: [])
        assert evalkit("run", recipe, "--out", out) == 0
    assert "over-length: " in capsys.readouterr().out.replace("\n", " ")
    assert evalkit("run", recipe, "--out", out) == 2
    assert "graphwalk_parents@1100" in refusal(capsys)
    assert answers(out) == 4
    assert evalkit("compare", out) == 0


def test_of_several_checkpoints_the_smallest_window_is_named(write, tmp_path, capsys):
    small = checkpoints.save(tmp_path / "small", max_position_embeddings=512)
    arms = f'{ARMS}[[arms]]\nname = "other"\nmodel = "{small}"\n'
    assert evalkit("run", write(graphs(500, 1000, 2000), arms=arms), "--out", tmp_path / "r") == 2
    said = refusal(capsys)
    assert "the 512 positions of the checkpoint of arm other (small)" in said
    assert [said.count(f"graphwalk_parents@{n} (") for n in (500, 1000, 2000)] == [0, 1, 1]
    assert "1024" not in said
    assert said.endswith("what fits: lengths up to 512\n")


def test_a_cell_that_is_too_short_and_one_that_is_too_long_are_said_together(write, capsys):
    assert evalkit("run", write(graphs(64, 2000))) == 2
    said = refusal(capsys)
    assert "graphwalk_parents@64: too short" in said
    assert "graphwalk_parents@2000 (" in said


def test_a_reasoning_block_needs_room_besides_the_length(write, capsys):
    recipe = write(graphs(1000))
    assert evalkit("run", recipe, "--set", "prompts.reasoning_tokens=100") == 2
    said = refusal(capsys)
    assert " + 104 tokens)" in said
    assert said.endswith("what fits: lengths up to 924\n")


@pytest.mark.parametrize("lengths", [None, 1200])
def test_the_longest_record_is_asked_wherever_it_stands(write, tmp_path, capsys, lengths):
    more = "" if lengths is None else f"lengths = [{lengths}]"
    recipe = write(mine(tmp_path, [5, 9, 3000, 7], more))
    assert evalkit("run", recipe, "--out", tmp_path / "run") == 2
    said = refusal(capsys)
    assert "mine (" in said if lengths is None else "mine@1200 (1" in said
    fits = "lengths = [1024], which cuts" if lengths is None else "lengths up to 1024\n"
    assert f"what fits: {fits}" in said
    assert answers(tmp_path / "run") == 0
    assert evalkit("run", recipe, "--out", tmp_path / "run", "--limit", 2) == 0


def test_records_that_are_cut_to_fit_are_not_refused(write, tmp_path):
    recipe = write(mine(tmp_path, [5, 3000], "lengths = [1024]"))
    assert evalkit("run", recipe, "--out", tmp_path / "run") == 0
    rows = [
        row
        for arm in ("baseline", "1/4")
        for row in RunStore(tmp_path / "run").read_samples(arm).values()
    ]
    assert [row.error for row in rows] == [None] * 4


def longbench(tmp_path, max_length):
    short = record("multifieldqa_en", context="a b c")
    long = record("multifieldqa_en", context="one two three four " * 600)
    write_folder(tmp_path / "data", {"multifieldqa_en": [short, long]})
    write_prompts(
        tmp_path / "prompts", {"multifieldqa_en": "{context}\n{input}"}, {"multifieldqa_en": 4}
    )
    return (
        '[[tasks]]\nkind = "longbench"\ntasks = ["multifieldqa_en"]\ndata = "data"\n'
        f'prompts = "prompts"\nmax_length = {max_length}\n'
    )


def test_a_data_set_cell_is_refused_only_where_its_cut_prompts_do_not_fit(write, tmp_path, capsys):
    out = tmp_path / "run"
    assert evalkit("run", write(longbench(tmp_path, 3000)), "--out", out) == 2
    said = refusal(capsys)
    assert "longbench/multifieldqa_en (" in said
    fits = int(said.rpartition("max_length up to ")[2])
    assert 900 < fits < 1024
    assert evalkit("run", write(longbench(tmp_path, fits)), "--out", out) == 0
    assert {row.error for row in RunStore(out).read_samples("baseline").values()} == {None}


SERVERS = """
model = "{model}"
[engine]
kind = "openai_server"
urls = ["{base}"]
probe_prompts = 0
"""


def serving(window):
    entry = {"id": "model", "max_model_len": window}
    return {"/v1/models": {"data": [entry]}, "/version": {"version": "0.28.0"}}


def test_the_window_that_a_server_tells_is_kept_to(write, paper_checkpoint, tmp_path, capsys):
    """The check reads it anyway; the smallest of the arms' servers binds, before any answer."""
    arms = '[[arms]]\nname = "baseline"\n[[arms]]\nname = "again"\nserver.urls = ["{}"]\n'
    with (
        FakeServer(model="model", reports=serving(2048)) as base,
        FakeServer(model="model", reports=serving(900)) as small,
    ):
        recipe = write(graphs(800, 1000), arms=arms.format(small.url), head=SERVERS, base=base.url)
        changed = ("--set", f"model={paper_checkpoint}")
        assert evalkit("run", recipe, "--out", tmp_path / "run", *changed) == 2
        said = refusal(capsys)
        assert "the 900 positions of the server of arm again" in said
        assert "graphwalk_parents@1000 (" in said
        assert "@800" not in said
        assert answers(tmp_path / "run") == 0
        recipe.write_text(recipe.read_text().replace("[800, 1000]", "[800, 900]"))
        assert evalkit("run", recipe, "--out", tmp_path / "run", *changed) == 0


def test_a_server_that_tells_no_window_is_asked(write, paper_checkpoint, tmp_path):
    arms = '[[arms]]\nname = "baseline"\n[[arms]]\nname = "again"\n'
    with FakeServer(model="model") as base:
        recipe = write(graphs(4000), arms=arms, head=SERVERS, base=base.url)
        changed = ("--set", f"model={paper_checkpoint}")
        assert evalkit("run", recipe, "--out", tmp_path / "run", *changed) == 0
