"""Run directories are read as one only where every fact that moves a score is the same."""

from __future__ import annotations

import json

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.core.errors import EvalkitError
from evalkit.run.merge import open_runs
from tests.command import evalkit
from tests.report.runs import ARMS, make

RECIPE = """
model = "{model}"
[engine]
kind = "oracle"
[[tasks]]
kind = "needle"
lengths = [1200]
unit = "characters"
depths = [0, 50, 100]
repeats = 4
value_digits = 4
key_adjectives = ["brave", "calm", "eager", "fancy", "giant", "happy"]
key_nouns = ["apple", "arrow", "badge", "banjo", "barrel", "basket"]
max_new_tokens = 6
[[arms]]
name = "{arm}"
"""


@pytest.fixture
def run(tmp_path, checkpoint):
    """Runs of one arm on the same twelve prompts."""

    def go(name, *settings, arm=None):
        path = tmp_path / f"{name}.toml"
        path.write_text(RECIPE.format(model=checkpoint, arm=arm or name), encoding="utf-8")
        flags = [word for setting in settings for word in ("--set", setting)]
        assert evalkit("run", path, "--out", tmp_path / name, *flags) == 0
        return tmp_path / name

    return go


def test_runs_that_agree_are_merged(run):
    comparison = compare_run(open_runs([run("one"), run("two")]))
    assert [(row.arm, row.n) for row in comparison.result.rows if row.task == "macro"] == [
        ("one", 12),
        ("two", 12),
    ]


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        (
            "tasks.needle.max_new_tokens=7",
            "answer budget (tokens) of needle@1200chars/0 is 6 and 7",
        ),
        ("prompts.reasoning_tokens=64", "prompts.reasoning_tokens is 0 and 64"),
        ("engine.seed=3", "engine.seed is 0 and 3"),
        ("scoring.mode=strict", "scoring.mode is official and strict"),
        ("scoring.reasoning=keep", "scoring.reasoning is split and keep"),
    ],
)
def test_what_moves_a_score_is_refused_by_name(run, capsys, setting, named):
    one, two = run("one"), run("two", setting)
    capsys.readouterr()
    assert evalkit("report", one, two, "--no-plots") == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


def test_two_scoring_rules_are_mended_by_the_command_that_the_refusal_names(run, capsys):
    one, two = run("one"), run("two", "scoring.mode=strict", "scoring.reasoning=keep")
    capsys.readouterr()
    assert evalkit("report", one, two, "--no-plots") == 2
    command = capsys.readouterr().err.partition("evalkit score ")[2].split()
    assert command == [str(two), "--set", "mode=official", "--set", "reasoning=split"]
    assert evalkit("score", *command) == 0
    assert evalkit("report", one, two, "--no-plots") == 0


def edited(store, change):
    path = store.path / "run.json"
    run = json.loads(path.read_text())
    change(run)
    path.write_text(json.dumps(run))
    return store.path


def pair(tmp_path, change, other=lambda _: None, **more):
    """Two runs of other arms on the same samples; the second one changed."""
    a = make(tmp_path / "a", n=4, tasks=("vt@4096",), arms=ARMS[:2])
    b = make(tmp_path / "b", n=4, arms=(ARMS[0], ARMS[3]), **({"tasks": ("vt@4096",)} | more))
    return [edited(a, other), edited(b, change)]


def of_arms(**facts):
    return lambda run: [arm.update(facts) for arm in run["arms"]]


def server(**settings):
    report = {"kind": "sglang", "version": "0.5.23", "models": [], "overrides": {}}
    check = {"verdict": "engaged", "servers": [report | {"settings": settings}]}
    return of_arms(check=check)


def budget(tokens):
    section = {"kind": "ruler", "tasks": ["vt"], "tokens_to_generate": tokens}
    return lambda run: run["recipe"].update(tasks=[section])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ((of_arms(dtype="bfloat16"),), "dtype is float32 and bfloat16"),
        (
            (server(kv_cache_dtype="fp8_e5m2"), server(kv_cache_dtype="auto")),
            "sglang: kv_cache_dtype is auto and fp8_e5m2",
        ),
        (
            (server(dsa_topk_backend="torch"), server(dsa_topk_backend="flashinfer")),
            "sglang: dsa_topk_backend is flashinfer and torch",
        ),
        ((budget(30), budget(20)), "ruler: tokens_to_generate is 20 and 30"),
    ],
)
def test_what_engine_and_records_tell_is_compared(tmp_path, changes, named):
    with pytest.raises(EvalkitError) as error:
        open_runs(pair(tmp_path, *changes))
    assert named in str(error.value)


def test_what_is_sent_to_a_server_is_not_printed(tmp_path):
    def body(value):
        engine = {"kind": "openai_server", "extra_body": {"key": value}}
        return lambda run: run.update(identity={"engine": engine})

    with pytest.raises(EvalkitError) as error:
        open_runs(pair(tmp_path, body("sk-secret"), body("sk-other")))
    assert "engine.extra_body differs" in str(error.value)
    assert "sk-" not in str(error.value)


def test_what_only_one_run_knows_is_no_difference(tmp_path):
    assert open_runs(pair(tmp_path, server(kv_cache_dtype="auto"))).exists


def test_prompts_are_compared_by_hash_whatever_was_answered(tmp_path):
    """Both runs gave the same answers: that proves nothing about what was asked."""
    a, b = pair(tmp_path, lambda _: None)
    for path in b.glob("arms/*/samples.jsonl"):
        text = path.read_text().replace('"prompt_sha256": "0', '"prompt_sha256": "f')
        path.write_text(text)
    with pytest.raises(EvalkitError, match="different prompts for vt@4096/0"):
        open_runs([a, b])


def test_chat_templates_are_compared_where_no_sample_is_shared(tmp_path):
    paths = pair(tmp_path, of_arms(prompts_sha256="e" * 64), tasks=("needle@512",))
    with pytest.raises(EvalkitError, match="sha256 of tokenizer and chat template is bbbb"):
        open_runs(paths)


def test_the_third_run_is_compared_with_what_the_second_told(tmp_path):
    paths = pair(tmp_path, server(kv_cache_dtype="auto"))
    third = make(tmp_path / "c", n=4, tasks=("vt@4096",), arms=ARMS[4:5])
    paths.append(edited(third, server(kv_cache_dtype="fp8_e5m2")))
    with pytest.raises(EvalkitError, match=r"/b and \S+/c cannot be merged: sglang: kv_cache"):
        open_runs(paths)
