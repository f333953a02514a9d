"""`evalkit run --until-decided`: fewer answers, the same after a kill, the question named."""

from __future__ import annotations

import json
import shutil

import pytest

from evalkit.analysis.compare import compare_run, settings_of
from evalkit.core.records import StoppingRecord
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
    assert drawn["IndexCache 1/4"] <= 96  # lost at once
    assert drawn["IndexCache 1/4"] < drawn["MLI k=1"] <= SIZE
    assert drawn["baseline"] == drawn["again"] == max(drawn.values())
    found = RunStore(stopped).read_run().until_decided
    assert found.question == "tasks"  # the default: is the arm no worse on such tasks?
    assert len(found.order["needle@256"]) == SIZE
    lost = compare_run(RunStore(stopped)).result.row("IndexCache 1/4", "needle@256")
    assert (lost.verdict, lost.n) == ("worse", drawn["IndexCache 1/4"])
    assert lost.result.method == "sequence"
    assert (lost.result.low, lost.result.high) == lost.bound
    assert lost.result.delta == pytest.approx(sum(lost.bound) / 2)  # not the mean that stopped it
    assert lost.result.delta != pytest.approx(lost.score - lost.baseline_score)


def test_another_margin_is_judged_on_the_same_answers(stopped):
    store = RunStore(stopped)
    words = [
        compare_run(store, settings=settings_of(store, [f"margin={m}"])).result.row("MLI k=1")
        for m in (0.1, 0.3)
    ]
    assert [row.verdict for row in words] == ["undecided", "no worse"]
    assert words[1].decision.p_no_worse <= 0.025


def test_an_interrupted_run_has_no_verdict(stopped, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    store = RunStore(out)
    store.write_run(store.read_run().with_until_decided(StoppingRecord.interrupted()))
    row = compare_run(store).result.row("IndexCache 1/4")
    assert row.verdict == "withheld"
    assert "the same command goes on" in row.notes[-1]


def test_the_order_is_random_and_keeps_haystacks_together(stopped):
    items = RunStore(stopped).read_items()
    drawn = answers(stopped)["IndexCache 1/4"]
    order = [items[i].cluster for i in items]
    assert order != sorted(order, key=lambda c: int(c.rpartition(" ")[2]))
    runs = [c for k, c in enumerate(order) if k == 0 or order[k - 1] != c]
    assert len(runs) == len(set(order))
    assert set(drawn) == set(list(items)[: len(drawn)])


def test_the_output_names_the_question(recipe, stopped, tmp_path, capsys):
    assert evalkit("compare", stopped) == 0
    printed = capsys.readouterr().out
    text = " ".join(printed.split())
    assert "stopped when decided: is the arm no worse on such tasks?" in text
    assert "% saved" in text
    assert "those of the confidence sequence" in (stopped / "report.md").read_text()
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
    assert evalkit("run", recipe, "--out", out, "--until-decided") == 130
    monkeypatch.setattr(Store, "add_samples", add)
    assert evalkit("run", recipe, "--out", out, "--until-decided") == 0
    assert answers(out) == answers(stopped)
    ours, theirs = (RunStore(p).read_run().until_decided for p in (out, stopped))
    assert json.dumps(ours.stored) == json.dumps(theirs.stored)


def test_without_the_option_the_rest_is_answered(recipe, stopped, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    assert evalkit("run", recipe, "--out", out) == 0
    assert {len(ids) for ids in answers(out).values()} == {SIZE}
    assert "until_decided" not in RunStore(out).read_run().stored
    whole = compare_run(RunStore(out)).result
    assert whole.row("IndexCache 1/4", "needle@256").n == SIZE


def test_the_whole_benchmark_is_another_question(recipe, stopped, tmp_path, capsys):
    out = tmp_path / "run"
    assert evalkit("run", recipe, "--out", out, "--until-decided", "--question", "benchmark") == 0
    assert "what would the whole benchmark say?" in " ".join(capsys.readouterr().out.split())
    row = compare_run(RunStore(out)).result.row("MLI k=1")
    assert row.verdict == "no worse"  # of these 180 samples; of such tasks it is undecided
    assert compare_run(RunStore(stopped)).result.row("MLI k=1").verdict == "undecided"


@pytest.mark.parametrize("question", ["tomorrow", ""])
def test_another_question_is_refused(recipe, tmp_path, question, capsys):
    options = ["--until-decided", "--question", question]
    assert evalkit("run", recipe, "--out", tmp_path / "run", *options) == 2
    assert "benchmark, tasks" in capsys.readouterr().err
