"""The command line from predictions to a comparison and back out, and our own tasks end to end."""

import json
import subprocess
import sys

import pytest

from evalkit.report.plots.heatmap import write
from evalkit.run.store import RunStore
from tests.importers.files import lines, qa, trec
from tests.paths import ROOT
from tests.run.test_run import evalkit

TASKS = """
model = "{model}"
[engine]
kind = "oracle"
corrupt = {{ "half" = 0.5 }}
[[tasks]]
kind = "graphwalk"
lengths = [4096]
samples = 3
[[tasks]]
kind = "coreference"
equal = [2]
lengths = [4096]
samples = 3
[[tasks]]
kind = "needle_kamradt"
path = "text.txt"
lengths = [2000, 3000]
depths = [0, 50, 100]
buffer = 400
[[arms]]
name = "all"
[[arms]]
name = "half"
"""


def test_a_perfect_model_scores_one_on_our_own_tasks(tmp_path, checkpoint):
    text = " ".join(f"Sentence {i} has some words in it." for i in range(400))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(TASKS.format(model=checkpoint), encoding="utf-8")
    assert evalkit("run", recipe, "--out", tmp_path / "run") == 0
    store = RunStore(tmp_path / "run")
    scores = store.read_scores("all")
    assert len(scores) == 3 + 3 + 3 + 6
    assert {row.score for row in scores.values()} == {1}
    assert 0 < sum(row.score for row in store.read_scores("half").values()) < 15
    names = [path.name for path in write(store)]
    assert "heatmap-kamradt-all.png" in names
    assert "heatmap-kamradt-half-minus-all.svg" in names


def test_predictions_become_a_report_and_results(tmp_path, capsys):
    for arm in ("full", "skipped"):
        wrong = {"pred": "no"} if arm == "skipped" else {}
        rows = [qa(i) | (wrong if i % 2 else {}) for i in range(10)]
        lines(tmp_path / arm / "qasper.jsonl", [*rows, "{torn"])
        lines(tmp_path / arm / "trec.jsonl", [trec(i) for i in range(4)])
        out = tmp_path / "run"
        source = tmp_path / arm
        assert evalkit("import", "longbench", source, "--arm", arm, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "full: 14 samples of 2 tasks imported (longbench)" in printed
    assert "qasper.jsonl:11: not JSON" in printed
    assert evalkit("compare", out, "--baseline", "full") == 0
    printed = capsys.readouterr().out
    assert "longbench/qasper" in printed
    printed = " ".join(printed.split())
    assert "all arms read the same, nor what was cut or truncated" in printed
    assert "· 0 answers: failed, empty, with unclosed reasoning ·" in printed
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "- full: not known (imported)" in report
    rows = json.loads((out / "compare.json").read_text(encoding="utf-8"))["rows"]
    row = next(r for r in rows if (r["arm"], r["task"]) == ("skipped", "longbench/qasper"))
    assert (row["n"], row["delta"]) == (10, pytest.approx(-0.5))
    assert row["ci_low"] < row["delta"] < row["ci_high"]
    assert evalkit("export", "lm_eval", out, "--out", tmp_path / "x", "--arm", "full") == 0
    assert len(list((tmp_path / "x" / "full").iterdir())) == 3
    assert evalkit("export", "model_card", out, "--out", tmp_path / "y") == 0
    assert len(list((tmp_path / "y").rglob("model-index.yaml"))) == 2


def test_mistakes_end_in_one_line(tmp_path, capsys):
    lines(tmp_path / "a" / "qasper.jsonl", [qa(i) for i in range(4)])
    lines(tmp_path / "b" / "qasper.jsonl", [qa(i) for i in range(3)])
    out = tmp_path / "run"
    assert evalkit("import", "longbench", tmp_path / "a", "--arm", "a", "--out", out) == 0
    capsys.readouterr()
    assert evalkit("import", "longbench", tmp_path / "b", "--arm", "b", "--out", out) == 2
    error = capsys.readouterr().err
    assert error.startswith("evalkit: b has not all samples, or not those of the other arms:")
    assert error.count("\n") == 1
    arguments = ("--arm", "b", "--out", out, "--allow-partial")
    assert evalkit("import", "longbench", tmp_path / "b", *arguments) == 0
    assert "1 of 4 samples are missing" in capsys.readouterr().out


def test_more_than_a_few_tasks_are_rows(tmp_path, capsys):
    tasks = ("qasper", "hotpotqa", "2wikimqa", "musique", "narrativeqa", "triviaqa", "dureader")
    out = tmp_path / "run"
    for arm in ("one", "two"):
        for task in tasks:
            lines(tmp_path / arm / f"{task}.jsonl", [qa(i) for i in range(3)])
        assert evalkit("import", "longbench", tmp_path / arm, "--arm", arm, "--out", out) == 0
    assert evalkit("compare", out) == 0
    printed = capsys.readouterr().out.splitlines()
    for task in tasks:
        assert sum(line.split()[:2] == [f"longbench/{task}", "two"] for line in printed) == 1


def test_importers_and_exporters_need_no_torch():
    code = (
        "import sys, evalkit.importers, evalkit.exporters, evalkit.tasks.registry\n"
        "bad = {'torch', 'transformers', 'pandas'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
