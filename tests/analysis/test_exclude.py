"""Samples left out by hand are in no score, and every table says so; gold that was cut shows."""

import json

import pytest

from evalkit.analysis.compare import compare_part, compare_run, settings_of
from evalkit.core.errors import EvalkitError
from evalkit.core.records import ItemRow, RunRecord, SampleRow
from evalkit.importers import import_predictions
from evalkit.report import retention_table
from evalkit.report.markdown import markdown
from evalkit.report.tables import by_task, counts, notes, summary
from evalkit.run.scoring import score_row, score_run, scoring_of
from evalkit.run.store import RunStore
from evalkit.stats.verdict import LeftOutByHand
from tests.analysis.coded_runs import coded_run
from tests.command import evalkit
from tests.importers.files import lines, qa


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path / "run")
    for arm, wrong in (("full", 0), ("1/4", 2)):
        rows = [qa(i, "wrong" if i < wrong else None) for i in range(5)]
        path = lines(tmp_path / arm / "qasper.jsonl", rows)
        import_predictions("longbench", path, arm, store)
    score_run(store)
    return store


def test_samples_left_out_are_in_no_score_and_every_table_says_so(store):
    assert compare_run(store).result.row("1/4", "longbench/qasper").score == pytest.approx(3 / 5)
    settings = settings_of(store, ['exclude=["qasper/1"]'])
    comparison = compare_run(store, settings=settings)
    row = comparison.result.row("1/4", "longbench/qasper")
    assert (row.score, row.n) == (pytest.approx(3 / 4), 4)
    assert comparison.unfinished == {}
    grids = [summary(comparison), by_task(comparison), counts(comparison)]
    grids += [s.grid for s in comparison.summaries]
    said = "without 1 left out by hand (longbench/qasper/1)"
    assert all(grid.title.endswith(said) for grid in grids)
    assert counts(comparison).rows[0][1] == "4 of 4"
    assert "left out by hand (compare.exclude): longbench/qasper/1" in notes(comparison)
    assert "left out by hand" in retention_table.markdown(
        retention_table.retention_table(comparison)
    )
    assert markdown(comparison).count("left out by hand") == 2  # of one task: table and note


def test_a_verdict_holds_with_the_samples_that_were_left_out(tmp_path):
    codes = {"full": {"qa": "+" * 200}, "arm": {"qa": "-" * 4 + "+" * 196}}
    store = coded_run(tmp_path, codes, margin=0.03)
    assert compare_run(store).result.row("arm").verdict == "undecided"
    lost = [f"qa/{k}" for k in range(4)]
    found = compare_run(store, settings=settings_of(store, [f"exclude={json.dumps(lost)}"]))
    for comparison in (found.result, compare_part(found, ["qa"])):  # the second for curves
        row = comparison.row("arm")
        assert (row.verdict, row.equivalent) == ("withheld", False)
        assert row.bound[0] > -0.03  # what is left would decide
        assert row.decision.reasons[0] == LeftOutByHand("undecided")
        assert row.notes[-1] == "undecided with the samples that were left out by hand"
    kept = [f"qa/{k}" for k in range(4, 8)]  # nothing is lost by these
    found = compare_run(store, settings=settings_of(store, [f"exclude={json.dumps(kept)}"]))
    assert found.result.row("arm").verdict == "undecided"


def taken_out(store, samples, answered):
    """The same run with fewer samples of its one task than were answered."""
    run = store.read_run()
    tasks = [{**task.stored, "samples": samples, "answered": answered} for task in run.tasks]
    store.write_run(RunRecord.parse({**run.stored, "tasks": tasks}))
    return store


def test_a_verdict_holds_with_the_samples_that_were_taken_out(tmp_path):
    """Nobody shortens a run to where the arm has lost nothing."""
    codes = {"full": {"qa": "+" * 200}, "arm": {"qa": "+" * 196 + "-" * 4}}
    store = taken_out(coded_run(tmp_path, codes, margin=0.03), 196, 200)
    found = compare_run(store)
    for name in ("qa", "macro"):
        row = found.result.row("arm", name)
        assert (row.verdict, row.n, row.score) == ("withheld", 196, 1.0)
        assert row.decision.reasons[0] == LeftOutByHand("undecided")
    said = "196 of 200 answered samples"
    grids = [summary(found), by_task(found), counts(found), *(s.grid for s in found.summaries)]
    assert all(grid.title.endswith(f"{said} of qa") for grid in grids)
    assert any(note.startswith(f"qa: {said} are compared") for note in notes(found))
    assert found.unfinished == {}


def test_samples_that_change_nothing_may_be_taken_out(tmp_path):
    codes = {"full": {"qa": "+" * 200}, "arm": {"qa": "+" * 200}}
    store = taken_out(coded_run(tmp_path, codes, margin=0.03), 190, 200)
    row = compare_run(store).result.row("arm")
    assert (row.verdict, row.n, row.notes) == ("no worse", 190, ())


def test_a_question_of_wrong_gold_may_go(tmp_path):
    codes = {"full": {"qa": "-" + "+" * 199}, "arm": {"qa": "-" + "+" * 199}}
    store = coded_run(tmp_path, codes, margin=0.03)
    found = compare_run(store, settings=settings_of(store, ['exclude=["qa/0"]']))
    row = found.result.row("arm")
    assert (row.verdict, row.n, row.notes) == ("no worse", 199, ())


def test_an_id_that_no_sample_has_is_refused(store):
    for name, hint in (("qasper/77", "items.jsonl"), ("qasper", "items.jsonl")):
        with pytest.raises(EvalkitError, match=f"{name!r} is no sample of this run: .*{hint}"):
            compare_run(store, settings=settings_of(store, [f'exclude=["{name}"]']))


def test_the_recipes_list_holds_for_every_reader(store, tmp_path):
    run = store.read_run().stored
    recipe = {**run["recipe"], "compare": {**run["recipe"]["compare"], "exclude": ["qasper/1"]}}
    (store.path / "run.json").write_text(json.dumps({**run, "recipe": recipe}))
    assert compare_run(store).result.row("1/4", "longbench/qasper").n == 4
    assert evalkit("export", "lm_eval", store.path, "--out", tmp_path / "out") == 0
    logs = list((tmp_path / "out").rglob("samples_*.jsonl"))
    assert logs
    assert all(len(log.read_text().splitlines()) == 4 for log in logs)


@pytest.mark.parametrize(("survived", "flagged"), [(False, True), (True, False), (None, False)])
def test_gold_that_truncation_cut_away_is_counted(store, survived, flagged):
    meta = {"truncated": True, "gold_survived": survived}
    item = ItemRow("t/0", "t", "qa_f1", ("x",), "t/0", meta)
    answer = SampleRow("t/0", "t", None, None, None, "x", "stop")
    row = score_row(item, answer, scoring_of(store.read_run()))
    assert ("gold_cut" in row.flags) == flagged
