"""No table rests on a score that is older than its answer, its gold or the rule."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.exporters import export
from evalkit.run.current_scores import current_scores, score_notes
from evalkit.run.merge import open_runs
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore
from tests.command import evalkit
from tests.importers.files import lines, qa
from tests.run.test_agreement import RECIPE

TASK = "needle@1200chars"


@pytest.fixture
def out(tmp_path, checkpoint):
    """A scored run: two arms, twelve right answers each."""
    path = tmp_path / "recipe.toml"
    text = RECIPE.format(model=checkpoint, arm="one") + '[[arms]]\nname = "two"\n'
    path.write_text(text, encoding="utf-8")
    assert evalkit("run", path, "--out", tmp_path / "run") == 0
    return tmp_path / "run"


def change(path, count, **fields):
    """The first lines of a record file with other fields."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row | fields if k < count else row for k, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def row(out, arm="two"):
    return compare_run(RunStore(out)).result.row(arm, TASK)


def remarks(out):
    return " | ".join(compare_run(RunStore(out)).remarks)


def test_a_table_of_fresh_scores_has_no_remark(out):
    assert (row(out).score, remarks(out)) == (1.0, "")


def test_answers_that_are_gone_leave_the_table(out, capsys):
    (out / "arms" / "two" / "samples.jsonl").unlink()
    capsys.readouterr()
    assert evalkit("compare", out) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "unfinished: two has 0 of 12 answers" in printed
    assert "scores left out, because their answers are gone: two (12)" in printed
    rows = json.loads((out / "compare.json").read_text())["rows"]
    assert {found["arm"] for found in rows} == {"one"}


def test_some_answers_gone_are_not_scored_by_what_is_left_of_them(out):
    path = out / "arms" / "two" / "samples.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:7]))
    assert row(out).n == 7
    assert "because their answers are gone: two (5)" in remarks(out)


def test_an_edited_answer_is_scored_again_and_said_to_be_edited(out):
    change(out / "arms" / "two" / "samples.jsonl", 3, completion=" nothing")
    assert row(out).score == pytest.approx(9 / 12)
    assert "changed since they were scored" in remarks(out)
    assert "not those that were recorded (their checksum differs): two (3)" in remarks(out)
    assert evalkit("score", out) == 0
    assert "checksum differs): two (3)" in remarks(out)  # scoring again does not hide it
    assert "changed since" not in remarks(out)


@pytest.mark.parametrize("fields", [{"score": 0.0}, {"flags": ["error"]}, {"answer": "no"}])
def test_an_edited_score_is_scored_again_and_said_to_be_edited(out, fields):
    change(out / "arms" / "two" / "scores.jsonl", 3, **fields)
    assert row(out).score == 1.0
    assert "not those that were written (their checksum differs): scored again: two (3)" in remarks(
        out
    )
    assert evalkit("score", out) == 0
    assert (row(out).score, remarks(out)) == (1.0, "")


def test_scores_of_a_version_without_checksums_are_taken(out):
    path = out / "arms" / "two" / "scores.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(old.pop("checksum") for old in rows)
    path.write_text("".join(json.dumps(old) + "\n" for old in rows))
    assert (row(out).score, remarks(out)) == (1.0, "")


def test_edited_gold_is_scored_again(out):
    change(out / "items.jsonl", 4, references=["0"])
    assert row(out).score == pytest.approx(8 / 12)
    assert "since they were scored (evalkit score writes that down): one (4), two (4)" in remarks(
        out
    )


def test_another_rule_is_scored_again(out):
    """The rule in run.json counts, not the one that scores.jsonl was written under."""
    path = out / "arms" / "two" / "samples.jsonl"
    change(path, 2, completion="<think>Which one?</think> nothing")
    evalkit("score", out)
    run = json.loads((out / "run.json").read_text())
    run["scoring"]["reasoning"] = "keep"
    (out / "run.json").write_text(json.dumps(run))
    assert "two (12)" in remarks(out)
    scores = current_scores(RunStore(out))["two"].scores
    assert next(iter(scores.values())).answer.startswith("<think>")


def test_an_answer_that_nobody_scored_is_scored(out):
    (out / "arms" / "two" / "scores.jsonl").unlink()
    assert (row(out).score, row(out).n, remarks(out)) == (1.0, 12, "")


def test_a_newer_version_of_the_scorers_scores_again(out, monkeypatch):
    monkeypatch.setattr("evalkit.run.scoring._version", lambda: "99")
    assert "one (12), two (12)" in remarks(out)


def test_scores_of_an_earlier_version_are_named(out):
    path = out / "arms" / "two" / "scores.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for found in rows:
        del found["basis"]
    path.write_text("".join(json.dumps(found) + "\n" for found in rows))
    assert "do not tell what was scored: evalkit score makes sure of them: two (12)" in remarks(out)
    assert evalkit("score", out) == 0
    assert remarks(out) == ""


def test_page_and_exports_show_the_same_scores(out, tmp_path):
    change(out / "arms" / "two" / "samples.jsonl", 3, completion=" nothing")
    assert evalkit("report", out, "--no-plots") == 0
    page = (out / "report.html").read_text()
    assert "checksum differs" in page
    (packed,) = re.findall(r'id="texts">([^<]*)<', page)
    texts = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert sum(["nothing", None] in answers for _, _, answers, _ in texts) == 3
    files = export("lm_eval", RunStore(out), tmp_path / "x", "two")
    results = next(json.loads(path.read_text()) for path in files if "results" in path.name)
    (cell,) = results["results"].values()
    assert cell["needle_exact,none"] == pytest.approx(9 / 12)


# -- imported arms beside arms that were run ------------------------------------------------------


def foreign(tmp_path, out, name="theirs"):
    """LongBench answers with reasoning, imported."""
    rows = [qa(i, f"<think>Let us see: no, no.</think>answer {i}") for i in range(6)]
    source = lines(tmp_path / name / "qasper.jsonl", rows).parent
    assert evalkit("import", "longbench", source, "--arm", name, "--out", out) == 0


def own(store):
    """The same answers as if they had been given here."""
    run = store.read_run()
    (entry,) = run.arms
    stored = {**entry.stored, "name": "ours"}
    del stored["imported"]
    store.add_samples("ours", store.read_samples("theirs").values())
    store.write_run(run.with_arm(type(entry).parse(stored)))


def test_the_same_answers_have_one_score_imported_or_not(tmp_path):
    store = RunStore(tmp_path / "run")
    foreign(tmp_path, store.path)
    official = [s.score for s in store.read_scores("theirs").values()]
    assert max(official) < 1  # the official script scores the reasoning, too
    own(store)
    comparison = compare_run(store, "theirs")
    scores = {n: comparison.result.row(n, "longbench/qasper").score for n in ("theirs", "ours")}
    assert scores == {"theirs": 1.0, "ours": 1.0}
    assert any("imported answers hold reasoning" in note for note in comparison.remarks)
    score_run(store)
    assert {s.score for s in store.read_scores("theirs").values()} == {1.0}
    assert compare_run(store, "theirs").remarks == comparison.remarks[1:]


def test_imported_arms_alone_are_scored_as_their_script_does(tmp_path):
    store = RunStore(tmp_path / "run")
    foreign(tmp_path, store.path)
    assert score_notes(current_scores(store)) == []
    assert all(s.answer.startswith("<think>") for s in store.read_scores("theirs").values())


def test_runs_that_are_merged_have_one_rule_for_imported_and_own_arms(tmp_path):
    one, two = RunStore(tmp_path / "one"), RunStore(tmp_path / "two")
    foreign(tmp_path, one.path)
    foreign(tmp_path, two.path)
    own(two)
    run = two.read_run()
    two.write_run(type(run).parse({**run.stored, "arms": [a.stored for a in run.arms[1:]]}))
    score_run(two)
    comparison = compare_run(open_runs([one.path, two.path]), "ours")
    assert comparison.result.row("theirs", "longbench/qasper").score == 1.0
    assert any("theirs (6)" in note for note in comparison.remarks)
