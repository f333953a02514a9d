"""A baseline that runs twice, and parity of builds, with the oracle."""

from __future__ import annotations

import json

import pytest

from evalkit.config.run import RunConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from tests.engagement.test_check import evalkit

RECIPE = """
model = "{model}"
[engine]
kind = "oracle"
corrupt = {{ again = {again}, "1/2" = 0.3, "1/2, other build" = {build} }}
[[tasks]]
kind = "needle"
lengths = [128]
depths = [0, 50]
repeats = 30
haystacks = 30
value_digits = 4
key_adjectives = ["brave", "calm", "eager", "fancy", "giant", "happy"]
key_nouns = ["apple", "arrow", "badge", "banjo", "barrel", "basket"]
max_new_tokens = 6
[[arms]]
name = "OFF"
[[arms]]
name = "again"
[[arms]]
name = "1/2"
retention = "1/2"
[[arms]]
name = "1/2, other build"
retention = "1/2"
server = {{ parity_of = "1/2" }}
[compare]
repeat_of_baseline = "again"
resamples = 500
margin = 0.05
"""


def run(checkpoint, tmp_path, again, build):
    path, out = tmp_path / "recipe.toml", tmp_path / "run"
    path.write_text(RECIPE.format(model=checkpoint, again=again, build=build), encoding="utf-8")
    assert evalkit("run", path, "--out", out) == 0
    rows = json.loads((out / "compare.json").read_text())["rows"]
    return {row["arm"]: row for row in rows if row["task"] == "needle@128"}, out


def test_builds_that_agree_and_a_baseline_that_stays(checkpoint, tmp_path, capsys):
    rows, _ = run(checkpoint, tmp_path, 0.0, 0.3)
    printed = capsys.readouterr().out
    assert rows["1/2"]["verdict"] == "worse"
    assert "parity of 1/2, other build with 1/2: Δ +0.000" in printed
    assert "no difference between the builds shown" in printed
    assert "second run differs" not in printed


def test_verdicts_have_to_hold_against_both_runs_of_the_baseline(checkpoint, tmp_path, capsys):
    rows, out = run(checkpoint, tmp_path, 0.4, 0.9)
    printed = capsys.readouterr().out
    assert rows["again"]["verdict"] == "repeat"
    # S8: it loses 30 points to one run and gains 10 on the other: nothing can be said
    assert rows["1/2"]["verdict"] == "withheld"
    assert rows["1/2"]["reasons"][0]["kind"] == "repeat_differs"
    assert "the baseline's second run differs from it by -" in printed
    assert rows["1/2"]["bound_high"] > 0 > rows["1/2"]["ci_high"]
    # a loss beyond margin and drift stays what it is
    assert rows["1/2, other build"]["verdict"] == "worse"
    assert "the builds differ" in printed
    assert "the builds differ" in (out / "report.md").read_text()


def test_the_other_build_must_be_an_arm(checkpoint):
    recipe = {"model": "x/y", "tasks": [{"kind": "needle", "lengths": [64]}]}
    recipe["arms"] = [{"name": "a", "server": {"parity_of": "b"}}]
    with pytest.raises(EvalkitError, match="parity_of b is not an arm"):
        parse(recipe, RunConfig, "recipe")
