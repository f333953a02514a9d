"""A run with texts that are read: records, resume, comparison, report, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from evalkit.core.records.likelihood import Likelihood
from evalkit.run.store import RunStore
from tests.command import evalkit

READ = """
[[tasks]]
kind = "perplexity"
lengths = [64]
context = 16
documents = 3
path = "prose.txt"
"""
ANSWERED = """
[[tasks]]
kind = "needle"
lengths = [256]
depths = [50]
repeats = 2
value_digits = 4
key_adjectives = ["brave", "calm", "eager"]
key_nouns = ["apple", "arrow", "badge"]
max_new_tokens = 2
"""
RECIPE = """
model = "{model}"
[engine]
{engine}
{tasks}
[[arms]]
name = "baseline"
[[arms]]
name = "again"
[[arms]]
name = "IndexCache 1/8"
retention = "1/8"
[[arms]]
name = "MLI k=1"
lag = 1
[compare]
repeat_of_baseline = "again"
"""
HF = 'kind = "hf"\ndtype = "float32"\nmax_batch = 2'
PROSE = "The grass is green. The sky is blue. Here we go. There and back again. 4821 7730 "


@pytest.fixture
def recipe(tmp_path, checkpoint):
    (tmp_path / "prose.txt").write_text(PROSE * 30, encoding="utf-8")

    def write(tasks, engine=HF):
        path = tmp_path / "recipe.toml"
        path.write_text(RECIPE.format(model=checkpoint, engine=engine, tasks=tasks))
        return path

    return write


def compared(out):
    return json.loads((out / "compare.json").read_text())


def test_beside_answers_and_never_in_their_average(recipe, tmp_path, capsys):
    out, path = tmp_path / "run", recipe(ANSWERED + READ)
    assert evalkit("run", path, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "perplexity of prose@64" in printed
    assert "no verdict, for a loss in nats has no upper end" in " ".join(printed.split())
    data = compared(out)
    assert {row["task"] for row in data["rows"]} == {"needle@256", "macro"}
    assert not data["unfinished"]
    rows = {row["arm"]: row for row in data["perplexity"]}
    assert list(rows) == ["baseline", "again", "IndexCache 1/8", "MLI k=1"]
    store = RunStore(out)
    read = {
        name: np.concatenate(
            [
                Likelihood.parse(row.completion).logprobs
                for i, row in store.read_samples(name).items()
                if i.startswith("prose")
            ]
        )
        for name in rows
    }
    for name, row in rows.items():
        assert (row["documents"], row["tokens"]) == (3, len(read[name]))
        assert row["perplexity"] == pytest.approx(np.exp(-read[name].mean()))
    assert (rows["again"]["verdict"], rows["again"]["delta"]["mean"]) == ("repeat", 0.0)
    assert rows["again"]["kl"]["mean"] == 0.0
    worse = rows["IndexCache 1/8"]
    assert worse["verdict"] == "withheld"
    assert worse["delta"]["mean"] == pytest.approx(
        (read["baseline"] - read["IndexCache 1/8"]).mean(), abs=1e-9
    )
    assert worse["kl"]["mean"] > 0.0
    assert rows["MLI k=1"]["kl"]["mean"] > 0.0  # decode steps: a lag acts
    scored = (out / "arms" / "baseline" / "scores.jsonl").read_text()
    assert "prose" not in scored


def test_only_read_is_resumed_compared_and_reported(recipe, tmp_path, capsys):
    out, path = tmp_path / "run", recipe(READ)
    assert evalkit("run", path, "--out", out) == 0
    before = compared(out)["perplexity"]
    samples = next(out.glob("arms/indexcache*/samples.jsonl"))
    lines = samples.read_text().splitlines(keepends=True)
    samples.write_text("".join(lines[:1]) + lines[1][:40])  # a kill while writing
    capsys.readouterr()
    assert evalkit("run", path, "--out", out) == 0
    assert compared(out)["perplexity"] == before
    assert evalkit("compare", out, "--baseline", "again") == 0
    assert compared(out)["perplexity"][0]["arm"] == "again"
    assert evalkit("report", out) == 0
    assert "Perplexity of held-out text" in (out / "report.html").read_text()
    assert evalkit("report", out, "--public") == 0
    assert json.loads((out / "public" / "evidence.json").read_text())["perplexity"]


def test_what_is_read_is_read_to_the_end_where_arms_stop_early(recipe, tmp_path):
    out = tmp_path / "run"
    assert evalkit("run", recipe(ANSWERED + READ), "--out", out, "--until-decided") == 0
    rows = compared(out)["perplexity"]
    assert [row["documents"] for row in rows] == [3, 3, 3, 3]


def test_an_engine_that_cannot_says_so(recipe, tmp_path, capsys):
    path = recipe(ANSWERED + READ, engine='kind = "oracle"')
    assert evalkit("run", path, "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert "engine.kind oracle gives no log-probabilities of a text, which tasks of kind" in error
    assert error.count("\n") == 1
