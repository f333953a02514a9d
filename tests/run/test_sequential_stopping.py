"""`evalkit run --until-decided`: fewer answers, the same after a kill, both questions named."""

from __future__ import annotations

import json

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.report import html
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.run.test_run import RECIPE

ENGINE = 'kind = "oracle"\ncorrupt = {"IndexCache 1/4" = 0.5, "MLI k=1" = 0.06}'
TEXT = (
    RECIPE.replace("repeats = 4", "repeats = 60")
    .replace("haystacks = 4", "haystacks = 60")
    .replace("[compare]", "[compare]\nmargin = 0.1")
)
SIZE = 180


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, checkpoint):
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(TEXT.format(model=checkpoint, engine=ENGINE), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def stopped(recipe, tmp_path_factory):
    out = tmp_path_factory.mktemp("stopped") / "run"
    assert evalkit("run", recipe, "--out", out, "--until-decided") == 0
    return out


def answers(out):
    store = RunStore(out)
    return {name: list(store.read_samples(name)) for name in store.read_run().names}


def test_arms_stop_when_decided(stopped):
    drawn = {arm: len(ids) for arm, ids in answers(stopped).items()}
    assert drawn["IndexCache 1/4"] <= 64  # lost at once
    assert drawn["IndexCache 1/4"] < drawn["MLI k=1"] <= SIZE
    assert drawn["baseline"] == max(drawn.values())
    found = RunStore(stopped).read_run().until_decided
    assert found.question == "benchmark"
    lost = found.verdicts["IndexCache 1/4"]["needle@256"]["benchmark"]
    assert (lost.verdict, lost.size) == ("worse", SIZE)
    assert lost.decided_at <= drawn["IndexCache 1/4"]
    again = found.verdicts["again"]["needle@256"]["benchmark"]
    assert again.verdict == "no worse"


def test_the_order_is_random_and_keeps_haystacks_together(stopped):
    items = RunStore(stopped).read_items()
    drawn = answers(stopped)["IndexCache 1/4"]
    order = [items[i].cluster for i in items]
    assert order != sorted(order, key=lambda c: int(c.rpartition(" ")[2]))
    runs = [c for k, c in enumerate(order) if k == 0 or order[k - 1] != c]
    assert len(runs) == len(set(order))
    assert set(drawn) == set(list(items)[: len(drawn)])


def test_the_output_names_both_questions(recipe, stopped, tmp_path, capsys):
    assert evalkit("compare", stopped) == 0
    printed = capsys.readouterr().out
    text = " ".join(printed.split())
    assert "what would the whole benchmark say?" in text
    assert "is the arm no worse on such tasks?" in text
    assert "% saved" in text
    assert "the confidence sequence's" in (stopped / "report.md").read_text()
    comparison = compare_run(RunStore(stopped))
    assert comparison.result.row("IndexCache 1/4").verdict == "worse"
    assert '<section id="stopping">' in html.page(RunStore(stopped), comparison)


def test_killed_and_resumed_equals_uninterrupted(recipe, stopped, tmp_path, monkeypatch):
    from evalkit.run.store import RunStore as Store

    out, left = tmp_path / "run", [7]
    add = Store.add_samples

    def dying(self, *args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        add(self, *args, **kwargs)

    monkeypatch.setattr(Store, "add_samples", dying)
    assert evalkit("run", recipe, "--out", out, "--until-decided") == 2
    monkeypatch.setattr(Store, "add_samples", add)
    assert evalkit("run", recipe, "--out", out, "--until-decided") == 0
    assert answers(out) == answers(stopped)
    ours, theirs = (RunStore(p).read_run().until_decided for p in (out, stopped))
    assert json.dumps(ours.stored) == json.dumps(theirs.stored)


def test_without_the_option_the_rest_is_answered(recipe, stopped, tmp_path):
    import shutil

    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    assert evalkit("run", recipe, "--out", out) == 0
    assert {len(ids) for ids in answers(out).values()} == {SIZE}
    assert "until_decided" not in RunStore(out).read_run().stored
    whole = compare_run(RunStore(out)).result
    assert whole.row("IndexCache 1/4", "needle@256").n == SIZE


def test_the_other_question_takes_more_samples(recipe, stopped, tmp_path):
    out = tmp_path / "run"
    assert evalkit("run", recipe, "--out", out, "--until-decided", "--question", "tasks") == 0
    assert len(answers(out)["again"]) > len(answers(stopped)["again"])
    found = RunStore(out).read_run().until_decided.verdicts["again"]["needle@256"]
    assert found["tasks"].verdict == "no worse"


@pytest.mark.parametrize("question", ["tomorrow", ""])
def test_another_question_is_refused(recipe, tmp_path, question, capsys):
    options = ["--until-decided", "--question", question]
    assert evalkit("run", recipe, "--out", tmp_path / "run", *options) == 2
    assert "benchmark, tasks" in capsys.readouterr().err
