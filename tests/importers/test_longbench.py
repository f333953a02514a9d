"""LongBench predictions: joined by position, repeated lines, what is refused."""

import json
import shutil

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.core.errors import EvalkitError
from evalkit.core.records import ScoreRow
from evalkit.importers import import_predictions
from evalkit.report.html import page
from evalkit.report.markdown import markdown
from evalkit.report.plots.curves import worse_first
from evalkit.report.retention_table import retention_table
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore
from tests.importers.files import lines, qa, read_jsonl, trec
from tests.paths import SHARED

RUNS = SHARED / "data" / "longbench_predictions"
FULL, REUSED = "llama3-8b-instruct", "llama3-8b-instruct_S21-22-23-24"


def run_of(tmp_path, name, **tasks):
    for task, rows in tasks.items():
        lines(tmp_path / name / f"{task}.jsonl", rows)
    return tmp_path / name


def bring(path, arm, store, **more):
    return import_predictions("longbench", path, arm, store, **more)


def test_two_runs_become_two_arms_that_are_compared(tmp_path, store):
    one = run_of(
        tmp_path, "one", qasper=[qa(i) for i in range(6)], trec=[trec(i) for i in range(4)]
    )
    bad = [qa(i, "wrong" if i < 3 else None) for i in range(6)]
    two = run_of(tmp_path, "two", qasper=bad, trec=[trec(i, "Date") for i in range(4)])
    report = bring(one, "full", store)
    assert (report.records, report.problems, report.coverage) == (10, (), ())
    bring(two, "1/4", store)
    items = store.read_items()
    assert items["longbench/trec/3"].json() == {
        "sample_id": "longbench/trec/3",
        "task": "longbench/trec",
        "metric": "classification",
        "references": ["Food"],
        "cluster": "longbench/trec/length 1003",
        "meta": {"length": 1003, "all_classes": ["Food", "Date"], "first_line": True},
    }
    assert store.read_samples("1/4")["longbench/qasper/0"].completion == "wrong"
    assert store.read_samples("full")["longbench/qasper/0"].prompt_sha256 is None
    assert score_run(store) == {"full": 10, "1/4": 10}
    comparison = compare_run(store, "full")
    rows = {row.task: row for row in comparison.result.rows if row.arm == "1/4"}
    assert rows["longbench/qasper"].score == pytest.approx((3 + 0) / 6)
    assert (rows["longbench/trec"].score, rows["longbench/trec"].n) == (0, 4)
    assert rows["macro"].result.delta == pytest.approx((-0.5 - 1) / 2)
    assert comparison.unfinished == {}
    run = store.read_run()
    assert [task.samples for task in run.tasks] == [6, 4]
    assert run.arms[1].imported.source == "two"
    assert str(tmp_path) not in json.dumps(run.stored)


def test_the_same_again_changes_nothing_and_other_content_is_refused(tmp_path, store):
    one = run_of(tmp_path, "one", qasper=[qa(i) for i in range(3)])
    bring(one, "full", store)
    before = {p: p.read_bytes() for p in store.path.rglob("*") if p.is_file() and p.name != ".lock"}
    report = bring(one, "full", store)
    assert report.unchanged
    assert "unchanged" in report.lines()[0]
    two = run_of(tmp_path, "two", qasper=[qa(i, "x") for i in range(3)])
    with pytest.raises(EvalkitError, match="there is an arm full with other content"):
        bring(two, "full", store)
    after = {p: p.read_bytes() for p in store.path.rglob("*") if p.is_file() and p.name != ".lock"}
    assert after == before


def test_answers_that_disagree_are_refused_line_by_line(tmp_path, store):
    bring(run_of(tmp_path, "one", qasper=[qa(i) for i in range(5)]), "full", store)
    other = [qa(i, answers=["else"] if i in (2, 3) else [f"answer {i}"]) for i in range(5)]
    with pytest.raises(EvalkitError) as error:
        bring(run_of(tmp_path, "two", qasper=other), "other", store)
    assert 'qasper.jsonl:3: the answers are ["else"]' in str(error.value)
    assert 'sample longbench/qasper/2 of the run has ["answer 2"]' in str(error.value)
    assert "not the same samples (2 of 5)" in str(error.value)
    assert store.read_run().names == ["full"]


def test_unequal_coverage_needs_a_flag(tmp_path, store):
    rows = [qa(i) for i in range(5)]
    bring(run_of(tmp_path, "one", qasper=rows, hotpotqa=rows), "full", store)
    two = run_of(tmp_path, "two", qasper=rows[:3], musique=rows[:1])
    with pytest.raises(EvalkitError) as error:
        bring(two, "part", store)
    assert "longbench/qasper: 2 of 5 samples are missing" in str(error.value)
    assert "longbench/hotpotqa: 5 of 5 samples are missing" in str(error.value)
    assert "longbench/musique: 1 samples that no other arm has" in str(error.value)
    report = bring(two, "part", store, allow_partial=True)
    assert len(report.coverage) == 3
    score_run(store)
    comparison = compare_run(store, "full")
    row = next(r for r in comparison.result.rows if (r.arm, r.task) == ("part", "longbench/qasper"))
    assert row.n == 3
    assert any("2 of 5 samples" in note for note in row.notes)


def test_an_arm_that_shares_no_sample_is_named_and_the_others_are_compared(tmp_path, store):
    rows = [qa(i) for i in range(5)]
    bring(run_of(tmp_path, "one", qasper=rows), "full", store)
    bring(run_of(tmp_path, "two", qasper=rows), "1/4", store)
    bring(run_of(tmp_path, "three", musique=rows), "other", store, allow_partial=True)
    score_run(store)
    comparison = compare_run(store, "full")
    assert {row.arm for row in comparison.result.rows} == {"full", "1/4"}
    assert comparison.result.row("1/4", "longbench/qasper").n == 5
    assert any(note.endswith("nothing to compare: other") for note in comparison.remarks)
    assert "other" in markdown(comparison)
    assert {row.arm for row in compare_run(store, "other").result.rows} == {"other"}
    table = retention_table(comparison)
    assert [line.arm for line in table.lines] == ["full", "1/4", "other"]
    assert "nothing to compare" in page(store, comparison)
    assert worse_first(comparison) == ["1/4"]


def test_a_line_twice_is_dropped(tmp_path, store):
    rows = [qa(i) for i in range(5)]
    one = run_of(tmp_path, "one", qasper=[*rows[:3], rows[1], *rows[3:], rows[4]])
    report = bring(one, "full", store)
    assert report.tasks["longbench/qasper"].repeated == ("qasper.jsonl:4", "qasper.jsonl:7")
    assert report.records == 5
    assert "2 of 7 lines were repeated and dropped" in "\n".join(report.lines())
    assert list(store.read_items()) == [f"longbench/qasper/{i}" for i in range(5)]
    bring(run_of(tmp_path, "two", qasper=rows), "other", store)


@pytest.mark.parametrize("cut", [1, 3, 34, 199])
@pytest.mark.parametrize("order", ["cut short first", "begun again"])
def test_a_run_that_was_cut_short_and_begun_again(tmp_path, store, cut, order):
    """The two golden files with 203 and 234 lines; answers of the two runs differ."""
    whole = [qa(i) for i in range(200)]
    part = [qa(i, "other") for i in range(cut)]
    rows = [*part, *whole] if order == "cut short first" else [*whole, *part]
    report = bring(run_of(tmp_path, "one", qasper=rows), "full", store)
    assert len(report.tasks["longbench/qasper"].repeated) == cut
    assert report.records == 200
    assert {row.completion for row in store.read_samples("full").values()} == {
        f"answer {i}" for i in range(200)
    }


def test_two_runs_that_were_cut_short(tmp_path, store):
    rows = [*(qa(i, "a") for i in range(7)), *(qa(i, "b") for i in range(12))]
    one = run_of(tmp_path, "one", qasper=[*rows, *(qa(i) for i in range(200))])
    assert len(bring(one, "full", store).tasks["longbench/qasper"].repeated) == 19
    assert store.read_samples("full")["longbench/qasper/6"].completion == "answer 6"
    thrice = [qa(i, str(k)) for k in range(3) for i in range(200)]
    report = bring(run_of(tmp_path, "two", qasper=thrice), "thrice", store)
    assert len(report.tasks["longbench/qasper"].repeated) == 400
    assert store.read_samples("thrice")["longbench/qasper/6"].completion == "2"


def test_equal_lines_of_a_complete_file_are_different_questions(tmp_path, store):
    """LongBench asks some questions twice; a complete file keeps them, and so does its twin."""
    rows = [trec(i) for i in range(200)]
    rows[110] = rows[13]
    report = bring(run_of(tmp_path, "one", trec=rows), "full", store)
    assert (report.records, report.tasks["longbench/trec"].repeated) == (200, ())
    part = [trec(i, "Date") if i == 13 else rows[i] for i in range(200)]
    assert bring(run_of(tmp_path, "two", trec=part), "other", store).records == 200


def test_equal_lines_are_kept_where_the_run_has_as_many_samples(tmp_path, store):
    rows = [qa(i) for i in range(6)]
    bring(run_of(tmp_path, "one", qasper=rows), "full", store)
    again = [qa(i, "same") for i in range(6)]
    again[4] = dict(again[2])
    with pytest.raises(EvalkitError, match=r"1 of 6 samples are missing; .* qasper\.jsonl:5"):
        bring(run_of(tmp_path, "two", qasper=again), "other", store)
    twin = [qa(i, "same", answers=["one"], length=5) for i in range(6)]
    other = RunStore(tmp_path / "second")
    bring(
        run_of(tmp_path, "three", qasper=[row | {"pred": str(i)} for i, row in enumerate(twin)]),
        "full",
        other,
    )
    report = bring(run_of(tmp_path, "four", qasper=twin), "equal answers", other)
    assert (report.records, report.tasks["longbench/qasper"].repeated) == (6, ())


def test_too_many_lines_that_cannot_be_told_apart_are_refused(tmp_path, store):
    rows = [qa(i) for i in range(203)]
    with pytest.raises(EvalkitError, match=r"qasper: 203 lines, but the task has 200"):
        bring(run_of(tmp_path, "one", qasper=rows), "full", store)
    assert not store.exists


def test_malformed_records_are_named_and_nothing_else_is_lost(tmp_path, store):
    rows = [
        qa(0),
        "{not json",
        qa(2, answers=None),
        qa(3, answers=[]),
        qa(4, answers="text"),
        qa(5, answers=["a", 7]),
        {key: value for key, value in qa(6).items() if key != "answers"},
        "[1, 2]",
        qa(8),
        "\udcff\udcfe",
        qa(10, pred=None) | {"pred": None},
        qa(11, pred=12),
        qa(12, length="long"),
        qa(13),
    ]
    text = [json.dumps(row) if not isinstance(row, str) else row for row in rows]
    text.append('{"pred": "bad \\ud800 half", "answers": ["answer 14"], "length": 3}')
    text.append('{"pred": "x", "answers": ["half \\udfff"], "all_classes": null, "length": 3}')
    report = bring(run_of(tmp_path, "one", qasper=text), "full", store)
    assert [str(problem) for problem in report.problems] == [
        "qasper.jsonl:2: not JSON (Expecting property name enclosed in double quotes at character"
        " 1); left out",
        "qasper.jsonl:3: answers: null; left out",
        "qasper.jsonl:4: answers: an empty list; left out",
        "qasper.jsonl:5: answers: text, not a list of texts; left out",
        "qasper.jsonl:6: answers[1]: a number, not text; left out",
        "qasper.jsonl:7: answers: missing; left out",
        "qasper.jsonl:8: a list, not an object; left out",
        "qasper.jsonl:10: not UTF-8 (byte 0); left out",
        "qasper.jsonl:11: pred: null; counted as an error",
        "qasper.jsonl:12: pred: a number, not text; counted as an error",
        "qasper.jsonl:13: length: text, not a number; left out",
        "qasper.jsonl:15: pred: lone surrogate, replaced by U+FFFD",
        "qasper.jsonl:16: answers[0]: lone surrogate, replaced by U+FFFD",
    ]
    # positions are those of the file
    assert list(store.read_samples("full")) == [
        f"longbench/qasper/{i}" for i in (0, 8, 10, 11, 13, 14, 15)
    ]
    assert store.read_samples("full")["longbench/qasper/14"].completion == "bad \ufffd half"
    assert report.tasks["longbench/qasper"].errors == 2
    score_run(store)
    scores = {i: row.score for i, row in store.read_scores("full").items()}
    assert (
        scores["longbench/qasper/8"],
        scores["longbench/qasper/10"],
        scores["longbench/qasper/11"],
    ) == (1, 0, 0)
    stored = store.read_run().arms[0].imported.problems
    assert stored == tuple(str(problem) for problem in report.problems)


def test_a_line_of_fifty_megabytes_is_named_and_the_next_is_read(tmp_path, store):
    path = lines(tmp_path / "one" / "qasper.jsonl", [qa(0)])
    with path.open("ab") as file:
        file.write(b'{"pred": "')
        for _ in range(50):
            file.write(b"x" * 2**20)
        file.write(b'", "answers": ["a"]}\n')
        file.write(json.dumps(qa(2)).encode() + b"\n")
    report = bring(tmp_path / "one", "full", store)
    (problem,) = report.problems
    assert str(problem).startswith("qasper.jsonl:2: a line of 52428")
    assert list(store.read_items()) == ["longbench/qasper/0", "longbench/qasper/2"]


def test_classes_are_needed_where_the_metric_needs_them(tmp_path, store):
    rows = [trec(0), qa(1, answers=["Food"]), trec(2)]
    report = bring(run_of(tmp_path, "one", trec=rows), "full", store)
    assert [str(p) for p in report.problems] == ["trec.jsonl:2: all_classes: null; left out"]
    rows = [qa(0, "Paragraph 3", answers=["Paragraph 3"]), qa(1, answers=["nowhere"])]
    other = RunStore(tmp_path / "second")
    report = bring(run_of(tmp_path, "two", passage_retrieval_en=rows), "full", other)
    assert report.problems[0].where.line == 2
    assert report.problems[0].field == "answers"
    assert report.records == 1


def test_other_files_are_named_and_left_out(tmp_path, store):
    path = run_of(tmp_path, "one", qasper=[qa(0)], hotpotq=[qa(0)])
    (path / "result.json").write_text("{}", encoding="utf-8")
    report = bring(path, "full", store)
    assert [str(p) for p in report.problems] == [
        "hotpotq.jsonl: no task of LongBench; did you mean hotpotqa?; left out"
    ]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "no such file"),
        ({"other": [qa(0)]}, "no file of a LongBench task"),
        ({"qasper": []}, "no record in it"),
        ({"qasper": ["{", "["]}, "no usable record"),
        (
            {"a/qasper": [qa(0)], "b/qasper": [qa(0)]},
            r"files of 2 runs: a \(a/qasper.jsonl\), b \(",
        ),
    ],
)
def test_nothing_to_import_is_said(tmp_path, store, files, says):
    with pytest.raises(EvalkitError, match=says):
        bring(run_of(tmp_path, "one", **files), "full", store)
    assert not store.exists


def test_longbench_e_is_cells_by_length(tmp_path, store):
    lengths = [100, 5000, 9000, 200, None, 3999, 4000]
    rows = [qa(i, length=length) for i, length in enumerate(lengths)]
    path = lines(tmp_path / "pred_e" / "model" / "qasper.jsonl", rows).parent
    report = bring(path, "full", store)
    cells = [f"longbench-e/qasper@{name}" for name in ("0-4k", "4-8k", "8k+")]
    assert [report.tasks[name].records for name in cells] == [3, 2, 1]
    assert [report.tasks[name].expected for name in cells] == [100, 100, 24]
    assert list(store.read_items()) == [
        *(f"{cells[0]}/{i}" for i in range(3)),
        *(f"{cells[1]}/{i}" for i in range(2)),
        f"{cells[2]}/0",
    ]
    assert [str(p) for p in report.problems] == ["qasper.jsonl:5: length: null; left out"]
    other = lines(tmp_path / "plain" / "qasper_e.jsonl", rows).parent
    assert bring(other, "again", store).coverage == ()


def test_an_interrupted_import_leaves_no_arm(tmp_path, store, monkeypatch):
    one = run_of(tmp_path, "one", qasper=[qa(i) for i in range(4)])

    def killed(self, run):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunStore, "write_run", killed)
        bring(one, "full", store)
    assert not store.exists
    # what it left is not taken for samples of the run
    other = run_of(tmp_path, "two", qasper=[qa(i, answers=["else"]) for i in range(3)])
    report = bring(other, "full", store)
    assert (report.records, report.coverage) == (3, ())
    assert len(read_jsonl(store.path / "items.jsonl")) == 3


def test_only_one_process_writes(tmp_path, store):
    one = run_of(tmp_path, "one", qasper=[qa(0)])
    with store.lock(), pytest.raises(EvalkitError, match="another process"):
        bring(one, "full", RunStore(store.path))


def test_unknown_formats_are_refused(tmp_path, store):
    with pytest.raises(EvalkitError, match=r"unknown format longbensh; did you mean longbench\?"):
        import_predictions("longbensh", tmp_path, "a", store)
    with pytest.raises(EvalkitError, match="an arm needs a name"):
        import_predictions("longbench", tmp_path, " ", store)


def test_a_part_of_a_run_that_was_begun_twice(tmp_path, store):
    """Fewer lines than the benchmark has samples: questions that are told apart are needed."""
    rows = [*(qa(i, "first") for i in range(4)), *(qa(i) for i in range(9))]
    report = bring(run_of(tmp_path, "one", qasper=rows), "full", store)
    assert len(report.tasks["longbench/qasper"].repeated) == 4
    assert report.records == 9


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not RUNS.is_dir(), reason="needs ../shared/data/longbench_predictions")
def test_the_two_published_runs(tmp_path, store):
    for arm in (FULL, REUSED):
        report = bring(RUNS / arm, arm, store)
        assert (report.records, report.problems, report.coverage) == (4750, (), ())
        assert all(not task.repeated for task in report.tasks.values())
    for arm in (FULL, REUSED):
        text = (RUNS / arm / "per_sample_official.json").read_text(encoding="utf-8")
        official = json.loads(text)["difflib"]
        scores = (
            ScoreRow(f"longbench/{task}/{i}", f"longbench/{task}", "official", score, "")
            for task, values in official.items()
            for i, score in enumerate(values)
        )
        store.write_scores(arm, scores)
    comparison = compare_run(store, FULL)
    rows = [row for row in comparison.result.rows if row.arm == REUSED and row.task != "macro"]
    assert len(rows) == 21
    assert all(row.result.low <= row.result.delta <= row.result.high for row in rows)
    assert rows[0].score == pytest.approx(0.3143, abs=5e-5)
    # 34 lines of a run that was cut short, in front of the whole one
    broken = tmp_path / "broken"
    shutil.copytree(RUNS / REUSED, broken)
    whole = (broken / "trec.jsonl").read_text(encoding="utf-8").splitlines()
    lines(broken / "trec.jsonl", [*whole[:34], *whole])
    report = bring(broken, "broken", store)
    assert len(report.tasks["longbench/trec"].repeated) == 34
    assert store.read_samples("broken") == store.read_samples(REUSED)
