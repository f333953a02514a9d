"""A model, tasks and arms on one line each, and the recipe that they stand for."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.config.run import RunConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.core.toml import document
from evalkit.run.short_recipe import AGAIN, BASELINE, short_recipe
from evalkit.run.store import RunStore
from tests.command import evalkit

NEEDLE = "needle@256"


def made(tasks=(NEEDLE,), arms=(), **more):
    return short_recipe("org/model", tasks, arms, **more)


def test_every_way_of_the_issue_is_read(checkpoint):
    tasks = ("ruler:niah_multikey_2@8192", "longbench:qasper@31500", "needle@16k")
    recipe = made(tasks, ("1/2", "1/4", "1/4+k1", "k2", "FSFSFSSS"), samples=100)
    assert recipe["tasks"] == [
        {"kind": "ruler", "tasks": ["niah_multikey_2"], "lengths": [8192], "samples": 100},
        {"kind": "longbench", "tasks": ["qasper"], "max_length": 31500},
        {"kind": "needle", "lengths": [16384], "repeats": 20},
    ]
    assert recipe["arms"] == [
        {"name": BASELINE},
        {"name": AGAIN},
        {"name": "1/2", "retention": "1/2"},
        {"name": "1/4", "retention": "1/4"},
        {"name": "1/4+k1", "retention": "1/4", "lag": 1},
        {"name": "k2", "lag": 2},
        {"name": "FSFSFSSS", "pattern": "FSFSFSSS"},
    ]
    assert recipe["limit"] == 100
    config = parse(recipe, RunConfig, "x")
    assert config.compare.repeat_of_baseline == AGAIN


def test_longbench_without_a_length_keeps_the_window_less_500_tokens(checkpoint):
    window = json.loads((checkpoint / "config.json").read_text())["max_position_embeddings"]
    (task,) = short_recipe(str(checkpoint), ["longbench:qasper"], [])["tasks"]
    assert task["max_length"] == window - 500


def test_seven_samples_of_five_depths_are_two_repeats():
    assert made(samples=7)["tasks"][0]["repeats"] == 2


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("niah_single_1@512", "unknown kind niah_single_1; did you mean ruler:niah_single_1?"),
        ("rulr:vt@512", "unknown kind rulr; did you mean ruler?"),
        ("ruler@512", "write ruler:NAME; evalkit tasks lists the names"),
        ("ruler:vt", "which length? write ruler:vt@8192, or @8k"),
        ("needle:x@512", "needle has no tasks to choose from: leave :x out"),
        ("ruler:vt@long", "long is no length: write 8192, or 8k"),
        ("", "write KIND:NAME@LENGTH"),
    ],
)
def test_a_task_that_cannot_be_read_says_how_one_is_written(task, said):
    with pytest.raises(EvalkitError) as caught:
        made([task])
    assert said in str(caught.value)


@pytest.mark.parametrize("arm", ["1/4+", "0.25", "k", "1/4 k1", "FSX", "half", ""])
def test_an_arm_that_cannot_be_read_says_how_one_is_written(arm):
    with pytest.raises(EvalkitError, match="write a retention"):
        made(arms=[arm])


def test_servers_of_all_arms_and_of_one():
    urls = ["http://a:1", "1/2=http://b:2", "1/2=http://c:3"]
    recipe = made(arms=["1/2"], urls=urls)
    assert recipe["engine"] == {"kind": "openai_server", "urls": ["http://a:1"]}
    servers = [arm.server and arm.server.urls for arm in parse(recipe, RunConfig, "x").arms]
    assert servers == [None, None, ("http://b:2", "http://c:3")]
    with pytest.raises(EvalkitError, match="there is no arm 1/8; did you mean 1/"):
        made(arms=["1/2"], urls=["1/8=http://b:2"])


def test_files_are_named_from_the_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("")
    recipe = made([{"kind": "records", "path": "rows.jsonl"}], [{"name": "x", "indexer": "gone"}])
    assert recipe["tasks"][0]["path"] == str(tmp_path / "rows.jsonl")
    assert recipe["arms"][-1]["indexer"] == "gone"


def test_none_in_a_section_is_as_if_it_were_not_given(checkpoint):
    arm = {"name": "1/4", "retention": "1/4", "lag": None, "selection": None, "indexer": None}
    task = {"kind": "needle", "lengths": [256], "path": None}
    recipe = short_recipe(str(checkpoint), [task], [arm], engine={"kind": "hf", "dtype": None})
    config = parse(recipe, RunConfig, "r.toml")
    assert recipe["arms"][-1] == {"name": "1/4", "retention": "1/4"}
    assert (config.arms[-1].selection, config.arms[-1].lag) == (None, 0)
    assert parse(tomllib.loads(document(recipe)), RunConfig, "r.toml") == config
    arms = [*recipe["arms"][:-1], {"name": "1/4", "retention": "1/4", "selection": None}]
    assert parse({**recipe, "arms": arms}, RunConfig, "r.toml") == config


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.text() | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner, max_size=3),
)


@given(
    st.dictionaries(
        st.text(),
        VALUES | st.dictionaries(st.text(), VALUES, max_size=3),
        max_size=4,
    )
)
def test_what_is_written_is_what_is_read(recipe):
    text = json.dumps(recipe, ensure_ascii=False)
    if "Infinity" in text or any("\ud800" <= c <= "\udfff" for c in text):
        return
    assert tomllib.loads(document(recipe)) == recipe


def test_the_recipe_that_is_left_gives_the_same_run(tmp_path, checkpoint, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = ("run", "--model", checkpoint, "--tasks", f"{NEEDLE},graphwalk:parents@2048")
    oracle = ("--set", "engine.kind=oracle", "--set", "engine.corrupt=0.5")
    assert evalkit(*short, "--arms", "1/2,k1", "--samples", 3, *oracle) == 0
    store = RunStore(tmp_path / "runs" / checkpoint.name)
    answers = {p: p.read_bytes() for p in store.path.glob("arms/*/samples.jsonl")}
    assert len(answers) == 4
    assert all(len(rows.splitlines()) == 6 for rows in answers.values())
    identity = store.read_run().identity_sha256
    assert evalkit("run", store.recipe) == 0
    assert {p: p.read_bytes() for p in answers} == answers  # nothing is asked again
    assert RunStore(store.path).read_run().identity_sha256 == identity
    copy = tmp_path / "mine.toml"
    copy.write_text(store.recipe.read_text())
    assert evalkit("run", copy, "--out", tmp_path / "new") == 0
    assert RunStore(tmp_path / "new").read_run().identity_sha256 == identity
    # Another arm is added as to any run; another run is refused and its recipe not written.
    assert evalkit(*short, "--arms", "1/2,k1,1/4", "--samples", 3, *oracle) == 0
    left = store.recipe.read_text()
    assert '"1/4"' in left
    capsys.readouterr()
    assert evalkit(*short, "--arms", "1/2", "--samples", 4, *oracle) == 2
    assert "holds another run" in capsys.readouterr().err
    assert store.recipe.read_text() == left


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "give a recipe, or --model and --tasks"),
        (("--model", "x"), "give a recipe, or --model and --tasks"),
        (("x.toml", "--model", "x"), "give a recipe, or --model with --tasks"),
        (("--model", "x/y", "--tasks", NEEDLE, "--limit", 2), "with --model, say --samples"),
        (("--model", "x/y", "--tasks", NEEDLE, "--samples", 0), "samples 0: it must be 1 or more"),
        (("--model", "./gone", "--tasks", NEEDLE), "model ./gone: no such directory"),
    ],
)
def test_a_run_without_a_recipe_says_what_is_missing(args, said, capsys):
    assert evalkit("run", *args) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
