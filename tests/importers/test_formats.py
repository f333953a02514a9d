"""The other formats: LongBench v2, RULER, the first needle test, lm-eval, kvpress."""

import csv
import json

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.files import append_jsonl
from evalkit.core.json_fields import BadField
from evalkit.core.records import RunRecord
from evalkit.importers import import_predictions, kvpress
from evalkit.run.store import RunStore
from tests.importers.files import lines, needle, qa, ruler, sample_log, scores, trec, v2
from tests.paths import SHARED

QASPER, V2 = "longbench/qasper", "longbench-v2/0shot"
DATA = SHARED / "data"


def problems(report):
    return [str(problem) for problem in report.problems]


# -- LongBench v2 -------------------------------------------------------------------------------


def test_longbench_v2_is_joined_by_its_ids(tmp_path, store):
    path = lines(tmp_path / "m.jsonl", [v2(0), v2(1, "No idea."), v2(2, "")])
    assert (
        import_predictions("longbench_v2", path, "a", store).tasks["longbench-v2/0shot"].records
        == 3
    )
    assert scores(store) == {
        "longbench-v2/0shot/id0": 1,
        "longbench-v2/0shot/id1": 0,
        "longbench-v2/0shot/id2": 0,
    }
    meta = store.read_items()["longbench-v2/0shot/id1"].meta
    assert meta == {"_id": "id1", "domain": "Code", "difficulty": "easy", "length": "short"}
    other = lines(tmp_path / "n.jsonl", [v2(2), v2(1), v2(0)])
    assert import_predictions("longbench_v2", other, "b", store).coverage == ()
    wrong = lines(tmp_path / "w.jsonl", [v2(0, answer="D"), v2(1), v2(2)])
    with pytest.raises(EvalkitError, match=r'w\.jsonl:1: the answers are \["D"\]'):
        import_predictions("longbench_v2", wrong, "c", store)


def test_malformed_results_of_longbench_v2(tmp_path, store):
    rows = [v2(0), v2(1, answer="E"), v2(2) | {"_id": 5}, v2(3) | {"response": None}, v2(0), v2(5)]
    rows += [v2(5, "The correct answer is (A).")]
    report = import_predictions("longbench_v2", lines(tmp_path / "m.jsonl", rows), "a", store)
    assert problems(report) == [
        "m.jsonl:2: answer: 'E', not one of A, B, C and D; left out",
        "m.jsonl:3: _id: a number, not text; left out",
        "m.jsonl:4: response: null; counted as an error",
        "m.jsonl:7: id5 was answered otherwise in m.jsonl:6, which is kept",
    ]
    assert report.tasks["longbench-v2/0shot"].repeated == ("m.jsonl:5", "m.jsonl:7")
    assert scores(store) == {
        "longbench-v2/0shot/id0": 1,
        "longbench-v2/0shot/id3": 0,
        "longbench-v2/0shot/id5": 1,
    }


def without(row, *keys):
    return {k: v for k, v in row.items() if k not in keys}


def failed(i):
    """A question that the model never answered, as some scripts write it."""
    return {"_id": f"id{i}", "error": "context length exceeded"}


def test_questions_that_failed_stay_in_the_denominator(tmp_path, store):
    """Three right of ten asked are .3, not 1.0 of three: their gold is the other arm's."""
    whole = lines(tmp_path / "whole.jsonl", [v2(i) for i in range(10)])
    import_predictions("longbench_v2", whole, "whole", store)
    part = lines(tmp_path / "m.jsonl", [*(v2(i) for i in range(3)), *map(failed, range(3, 10))])
    report = import_predictions("longbench_v2", part, "a", store)
    assert report.coverage == ()
    assert report.tasks[V2].errors == 7
    found = scores(store)
    assert (len(found), sum(found.values())) == (10, 3)
    assert import_predictions("longbench_v2", part, "a", store).unchanged


def test_failed_questions_without_gold_anywhere_are_no_silent_loss(tmp_path, store, monkeypatch):
    monkeypatch.setattr("evalkit.importers.common.gold.pinned_file", lambda _: None)
    part = lines(tmp_path / "m.jsonl", [v2(0), failed(1), failed(2)])
    with pytest.raises(EvalkitError, match=r"2 records have no answer key, and neither the run"):
        import_predictions("longbench_v2", part, "a", store)
    report = import_predictions("longbench_v2", part, "a", store, allow_partial=True)
    assert report.records == 1
    assert "they would leave the denominator" in report.coverage[0]
    none = lines(tmp_path / "n.jsonl", [failed(1)])
    with pytest.raises(EvalkitError, match=r"no usable record: .* 1 records have no answer key"):
        import_predictions("longbench_v2", none, "b", RunStore(tmp_path / "other"))


def test_gold_of_the_pinned_data(tmp_path, store, monkeypatch):
    choices = {f"choice_{c}": c for c in "ABCD"} | {"sub_domain": "x", "question": "?"}
    data = tmp_path / "data.json"
    rows = [v2(i) | choices | {"context": "x"} for i in range(3)]
    data.write_text(json.dumps(rows), encoding="utf-8")
    for module in ("gold", "clusters"):
        monkeypatch.setattr(f"evalkit.importers.common.{module}.pinned_file", lambda _: data)
    part = lines(tmp_path / "m.jsonl", [v2(0), failed(1), failed(2)])
    assert import_predictions("longbench_v2", part, "a", store).records == 3
    assert list(scores(store).values()) == [1, 0, 0]


def test_records_with_the_letter_alone(tmp_path, store):
    """Gold, the letter that the script read, its judgement, and no response."""
    rows = [without(v2(i), "response") for i in range(3)]
    rows[1]["pred"], rows[2]["pred"] = "D", None
    report = import_predictions("longbench_v2", lines(tmp_path / "m.jsonl", rows), "a", store)
    assert report.problems == ()
    assert any("the letter that their script read" in note for note in report.notes)
    assert list(scores(store).values()) == [1, 0, 0]


def test_the_file_name_says_how_it_was_asked(tmp_path, store):
    for name, cell in (
        ("m", "0shot"),
        ("m_cot", "0shot_cot"),
        ("m_no_context", "0shot_no_context"),
        ("m_rag_16", "0shot_rag_16"),
    ):
        own = RunStore(tmp_path / name)
        path = lines(tmp_path / f"{name}.jsonl", [v2(0)])
        report = import_predictions("longbench_v2", path, "a", own)
        assert list(report.tasks) == [f"longbench-v2/{cell}"]


def test_samples_of_a_run_are_found_by_the_benchmarks_own_id(tmp_path, store):
    """A run of ours numbers its samples; their meta data has the id."""
    items = [
        {
            "sample_id": f"longbench-v2/0shot/{i}",
            "task": "longbench-v2/0shot",
            "metric": "choice",
            "references": ["ABCD"[i % 4]],
            "cluster": "c",
            "meta": {"_id": f"id{i}"},
        }
        for i in (2, 0, 1)
    ]
    append_jsonl(store.path / "items.jsonl", items)
    task = {"name": "longbench-v2/0shot", "samples": 3, "deviations": {}}
    recipe = {"compare": {}}
    store.write_run(
        RunRecord.parse(
            {"arms": [{"name": "own"}], "tasks": [task], "recipe": recipe, "identity": {}}
        )
    )
    path = lines(tmp_path / "m.jsonl", [v2(0), v2(1), v2(2, "None.")])
    report = import_predictions("longbench_v2", path, "a", store)
    assert report.coverage == ()
    assert scores(store)["longbench-v2/0shot/2"] == 0
    assert len(store.read_items()) == 3
    four = {f"choice_{letter}": "text" for letter in "ABCD"}
    rows = [
        {"_id": f"id{i}", "answer": "ABCD"[i], "predicted_answer": "", **four} for i in (1, 0, 2)
    ]
    table(tmp_path / "k" / "predictions.csv", rows)
    assert import_predictions("kvpress", tmp_path / "k", "b", store).coverage == ()


def test_several_results_files_are_refused(tmp_path, store):
    for name in ("m", "m_cot"):
        lines(tmp_path / "results" / f"{name}.jsonl", [v2(0)])
    with pytest.raises(EvalkitError, match=r"2 results files \(m.jsonl, m_cot.jsonl …\): name one"):
        import_predictions("longbench_v2", tmp_path / "results", "a", store)


@pytest.mark.shared
@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
def test_published_longbench_v2_responses(store):
    path = DATA / "longbench_v2" / "predictions_exaone-3.5-32b.jsonl"
    report = import_predictions("longbench_v2", path, "exaone", store)
    assert (report.records, report.problems) == (502, ())
    assert "longbench-v2/0shot: 502 samples, the benchmark has 503" in report.lines()
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    judged = {f"longbench-v2/0shot/{row['_id']}": float(row["judge"]) for row in rows}
    assert scores(store, "exaone") == judged


# -- RULER --------------------------------------------------------------------------------------


def test_ruler_folders_are_named_after_their_length(tmp_path, store):
    for length in (4096, 8192):
        folder = tmp_path / "model" / "synthetic" / str(length) / "pred"
        lines(folder / "niah_single_1.jsonl", [ruler(i) for i in range(3)])
        lines(folder / "qa_1.jsonl", [ruler(0, "It is b", outputs=["a", "b"])])
        (folder / "summary.csv").write_text("Tasks\n", encoding="utf-8")
    report = import_predictions("ruler", tmp_path / "model", "a", store)
    assert (report.records, report.problems, report.notes) == (8, (), ())
    assert list(report.tasks) == [
        *("niah_single_1@4096", "qa_1@4096", "niah_single_1@8192", "qa_1@8192"),
    ]
    assert set(scores(store).values()) == {1}
    assert store.read_items()["qa_1@8192/0"].meta == {"length": 8192}


def test_ruler_chunks_are_put_together_in_their_order(tmp_path, store):
    folder = tmp_path / "4096"
    lines(folder / "vt-10.jsonl", [ruler(4)])
    lines(folder / "vt-2.jsonl", [ruler(2), ruler(3)])
    lines(folder / "vt-0.jsonl", [ruler(0), ruler(1)])
    import_predictions("ruler", folder, "a", store)
    assert list(store.read_items()) == [f"vt@4096/{i}" for i in range(5)]
    lines(folder / "vt.jsonl", [ruler(0)])
    with pytest.raises(EvalkitError, match="several files of vt@4096"):
        import_predictions("ruler", folder, "b", store)


def test_an_index_that_is_an_offset_is_no_id(tmp_path, store):
    folder = tmp_path / "4096"
    rows = [ruler(i, index=77 if i in (1, 3) else 100 + i) for i in range(5)]
    lines(folder / "niah_single_1.jsonl", rows)
    report = import_predictions("ruler", folder, "a", store)
    assert list(store.read_items()) == [f"niah_single_1@4096/{i}" for i in range(5)]
    assert report.tasks["niah_single_1@4096"].repeated == ()
    rows = [ruler(9), ruler(2), ruler(2)]
    lines(tmp_path / "8192" / "vt.jsonl", rows)
    other = RunStore(tmp_path / "second")
    report = import_predictions("ruler", tmp_path / "8192", "a", other)
    assert list(other.read_items()) == ["vt@8192/9", "vt@8192/2"]
    assert report.tasks["vt@8192"].repeated == ("vt.jsonl:3",)


def test_malformed_ruler_predictions(tmp_path, store):
    rows = [ruler(0), ruler(1, outputs=[]), ruler(2, outputs=None), ruler(3) | {"pred": None}]
    lines(tmp_path / "r" / "vt.jsonl", [*rows, ruler(4, index="x"), ruler(5)])
    lines(tmp_path / "r" / "vt_extra.jsonl", [ruler(0)])
    report = import_predictions("ruler", tmp_path / "r", "a", store)
    assert problems(report) == [
        "vt_extra.jsonl: no task of RULER; left out",
        "vt.jsonl:2: outputs: an empty list; left out",
        "vt.jsonl:3: outputs: null; left out",
        "vt.jsonl:4: pred: null; counted as an error",
        "vt.jsonl:5: index: text, not a number; left out",
    ]
    assert report.notes == ("the length of vt is not known: no folder is named after it",)
    assert scores(store) == {"vt/0": 1, "vt/3": 0, "vt/5": 1}


# -- the first needle test ----------------------------------------------------------------------


def test_needle_results_are_cells_of_a_grid(tmp_path, store):
    for length in (1000, 2000):
        for depth in (0.0, 50.0, 99.104):
            said = "A sandwich." if depth == 50 else "Eat a sandwich in Dolores Park."
            name = f"m_len_{length}_depth_{int(depth * 100)}_results.json"
            result = json.dumps(needle(length, depth, said))
            (tmp_path / "results").mkdir(exist_ok=True)
            (tmp_path / "results" / name).write_text(result, encoding="utf-8")
    report = import_predictions("needle_kamradt", tmp_path / "results", "a", store)
    assert list(report.tasks) == ["kamradt@1000", "kamradt@2000"]
    assert scores(store)["kamradt@2000/99.104/1"] == 1
    assert scores(store)["kamradt@2000/50/1"] == 0
    assert store.read_items()["kamradt@1000/50/1"].meta == {"length": 1000, "depth": 50}
    assert store.read_samples("a")["kamradt@1000/50/1"].extra == {"judge_score": 10}
    from evalkit.report.plots.heatmap import sections

    assert list(sections(store.read_items())) == ["kamradt"]


def test_malformed_needle_results(tmp_path, store):
    rows = [
        needle(1000, 0),
        needle(1000, 101),
        needle(0, 5),
        needle(1000, 10, needle="  "),
        needle(1000, 20) | {"model_response": None},
        needle(1000, 30, score="ten"),
        needle(1000, 40, needle="\nThe code is 7.\n", response="I see: the code is 7."),
        needle(1000, "5"),
        needle(1.5, 5),
    ]
    report = import_predictions("needle_kamradt", lines(tmp_path / "n.jsonl", rows), "a", store)
    assert problems(report) == [
        "n.jsonl:2: depth_percent: out of range; left out",
        "n.jsonl:3: context_length: out of range; left out",
        "n.jsonl:4: needle: empty; left out",
        "n.jsonl:5: model_response: null; counted as an error",
        "n.jsonl:6: score: text, not a number; left out",
        "n.jsonl:8: depth_percent: text, not a number; left out",
        "n.jsonl:9: context_length: 1.5, not a whole number; left out",
    ]
    assert len(report.notes) == 1
    assert scores(store) == {
        "kamradt@1000/0/1": 1,
        "kamradt@1000/20/1": 0,
        "kamradt@1000/40/1": 1,
    }


def test_results_of_several_models_are_refused(tmp_path, store):
    path = lines(tmp_path / "n.jsonl", [needle(1000, 0), needle(1000, 5, model="n")])
    with pytest.raises(EvalkitError, match=r"results of 2 models \(m in n.jsonl:1, n in n.jsonl:2"):
        import_predictions("needle_kamradt", path, "a", store)


@pytest.mark.shared
@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
def test_published_needle_responses(store):
    path = DATA / "needle" / "claude-2.1_responses.jsonl"
    report = import_predictions("needle_kamradt", path, "claude", store)
    assert (report.records, len(report.tasks), report.problems) == (1376, 35, ())
    rows = store.read_samples("claude")
    agree = sum(
        bool(value) == (rows[i].extra["judge_score"] >= 7)
        for i, value in scores(store, "claude").items()
    )
    assert agree == 1367


# -- lm-evaluation-harness ----------------------------------------------------------------------


def test_sample_logs_of_longbench_and_ruler(tmp_path, store):
    docs = [{"answers": [f"answer {i}"], "length": 1000 + i, "all_classes": None} for i in range(3)]
    logs = [sample_log(i, doc, doc["answers"][0]) for i, doc in enumerate(docs)]
    folder = tmp_path / "org__model"
    lines(folder / "samples_longbench_qasper_2026-01-02T03-04-05.6.jsonl", logs)
    gold = {"outputs": ["12"], "max_length": 4096}
    both = [sample_log(0, gold, "12"), sample_log(1, gold | {"max_length": 8192}, "no")]
    lines(folder / "samples_ruler_vt_2026-01-02T03-04-05.6.jsonl", both)
    (folder / "results_2026-01-02T03-04-05.6.json").write_text("{}", encoding="utf-8")
    report = import_predictions("lm_eval", folder, "a", store)
    assert report.problems == ()
    assert scores(store) == {
        **{f"longbench/qasper/{i}": 1 for i in range(3)},
        "vt@4096/0": 1,
        "vt@8192/1": 0,
    }
    # the same positions as LongBench's own files
    own = lines(tmp_path / "own" / "qasper.jsonl", [qa(i) for i in range(3)]).parent
    with pytest.raises(EvalkitError, match="vt@4096: 1 of 1 samples are missing"):
        import_predictions("longbench", own, "b", store)
    import_predictions("longbench", own, "b", store, allow_partial=True)


def test_the_newest_log_counts_and_filters_are_one_answer(tmp_path, store):
    doc = {"answers": ["x"], "length": 1}
    old, new = "2026-01-01T00-00-00.1", "2026-02-01T00-00-00.1"
    lines(tmp_path / "l" / f"samples_longbench_qasper_{old}.jsonl", [sample_log(0, doc, "old")])
    twice = [
        sample_log(0, doc, "x"),
        sample_log(0, doc, "x", filter="strict", filtered_resps=["y"]),
    ]
    lines(tmp_path / "l" / f"samples_longbench_qasper_{new}.jsonl", twice)
    report = import_predictions("lm_eval", tmp_path / "l", "a", store)
    assert scores(store) == {"longbench/qasper/0": 1}
    assert report.notes == (
        f"longbench/qasper of samples_longbench_qasper_{old}.jsonl is left out:"
        f" samples_longbench_qasper_{new}.jsonl is newer",
    )
    assert len(report.tasks["longbench/qasper"].repeated) == 1
    assert report.problems == ()


def test_malformed_sample_logs(tmp_path, store):
    doc = {"answers": ["x"], "length": 1}
    rows = [
        sample_log(0, doc, "x"),
        sample_log("one", doc, "x"),
        sample_log(2, None, "x"),
        sample_log(3, {"answers": []}, "x"),
        sample_log(4, doc, "x", resps=[[["-1.5", "True"]], [["-2", "False"]]]),
        sample_log(5, doc, "x", resps=[]),
        sample_log(6, {"answers": ["x", None]}, "x"),
    ]
    name = "samples_longbench_qasper_2026.jsonl"
    lines(tmp_path / "l" / name, rows)
    lines(tmp_path / "l" / "samples_gsm8k_2026.jsonl", rows)
    report = import_predictions("lm_eval", tmp_path / "l", "a", store)
    assert problems(report) == [
        "samples_gsm8k_2026.jsonl: no metric of ours for the task 'gsm8k'; left out",
        f"{name}:2: doc_id: text, not a number; left out",
        f"{name}:3: doc: null; left out",
        f"{name}:4: doc.answers: an empty list; left out",
        f"{name}:5: resps: a list, not a generated text; counted as an error",
        f"{name}:6: resps: not a list of lists of texts; counted as an error",
        f"{name}:7: doc.answers[1]: null, not text; left out",
    ]
    assert scores(store) == {
        "longbench/qasper/0": 1,
        "longbench/qasper/4": 0,
        "longbench/qasper/5": 0,
    }


# -- kvpress ------------------------------------------------------------------------------------


def table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, sorted(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_kvpress_results_of_ruler(tmp_path, store):
    rows = [
        {
            "task": task,
            "question": "What?\nWhere?",
            "answer": answer,
            "predicted_answer": said,
            "max_new_tokens": 128,
        }
        for task, answer, said in [
            ("niah_multivalue", "['12' '34']", "12, then 34"),
            ("niah_multivalue", "['56'\n '78']", "56"),
            ("qa_1", "[\"it's\", 'b']", "b"),
            ("vt", "['A']", ""),
        ]
    ]
    folder = tmp_path / "ruler__4096__org--model__snapkv__0.50"
    table(folder / "predictions.csv", rows)
    report = import_predictions("kvpress", tmp_path, "a", store)
    assert report.problems == ()
    assert scores(store) == {
        "niah_multivalue@4096/0": 1,
        "niah_multivalue@4096/1": 0.5,
        "qa_1@4096/0": 1,
        "vt@4096/0": 0,
    }
    (folder / "config.yaml").write_text("data_dir: '8192'\ndataset: ruler\n", encoding="utf-8")
    other = RunStore(tmp_path / "second")
    import_predictions("kvpress", folder / "predictions.csv", "a", other)
    assert "vt@8192/0" in other.read_items()


def test_kvpress_results_of_longbench_v2_and_needle(tmp_path, store):
    own = [
        {
            "task": "trec",
            "_id": f"h{i}",
            "answers": "['Food']",
            "all_classes": "['Food' 'Date']",
            "length": "77",
            "predicted_answer": "Food\nQuestion:",
        }
        for i in range(2)
    ]
    table(tmp_path / "a" / "predictions.csv", own)
    four = {f"choice_{letter}": "text" for letter in "ABCD"}
    two = {"_id": "x", "answer": "B", "predicted_answer": "The correct answer is B", **four}
    table(tmp_path / "b" / "predictions.csv", [two])
    text = needle(1, 0)["needle"]
    row = {"needle": text, "needle_depth": "50", "predicted_answer": "sandwich, Dolores Park"}
    table(tmp_path / "c" / "predictions.csv", [row])
    (tmp_path / "c" / "config.yaml").write_text("max_context_length: 16000\n", encoding="utf-8")
    report = import_predictions("kvpress", tmp_path, "a", store)
    assert report.problems == ()
    assert scores(store) == {
        "longbench/trec/0": 1,
        "longbench/trec/1": 1,
        "longbench-v2/0shot/x": 1,
        "kamradt@16000/50/1": 1,
    }


def test_malformed_kvpress_results(tmp_path, store):
    path = tmp_path / "predictions.csv"
    path.write_text(
        "task,answer,predicted_answer\n"
        "vt,['12'],12\n"
        "vt,['13' 14],13\n"
        "vt,13,13\n"
        "vt,['15']\n"
        "other,['16'],16\n"
        "vt,['17'],17\n"
        "vt,\"['18' ... '19']\",18\n"
        "vt,[],18\n",
        encoding="utf-8",
    )
    report = import_predictions("kvpress", path, "a", store)
    assert problems(report) == [
        "predictions.csv:3: answer: not a printed list of texts; left out",
        "predictions.csv:4: answer: not a printed list; left out",
        "predictions.csv:5: 2 cells for 3 columns; left out",
        "predictions.csv:6: task: 'other' is no task of LongBench or RULER; left out",
        "predictions.csv:8: answer: not a printed list of texts; left out",
        "predictions.csv:9: answer: ruler_all: a sample without references cannot be scored;"
        " left out",
    ]
    assert scores(store) == {"vt/0": 1, "vt/3": 1}
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(EvalkitError, match="no column predicted_answer"):
        import_predictions("kvpress", path, "b", store)


def test_two_runs_of_kvpress_are_refused(tmp_path, store):
    rows = [{"task": "vt", "answer": "['1']", "predicted_answer": "1"}]
    for ratio in ("0.25", "0.50"):
        table(tmp_path / f"ruler__4096__m__press__{ratio}" / "predictions.csv", rows)
    with pytest.raises(EvalkitError, match=r"files of 2 runs: m__press__0.25 \("):
        import_predictions("kvpress", tmp_path, "a", store)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("['a' 'b']", ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ("['a'\n 'b c']", ["a", "b c"]),
        ('["it\'s" \'say "x"\']', ["it's", 'say "x"']),
        (r"['a\nb' 'c\\']", ["a\nb", "c\\"]),
        ("[]", []),
        ("['a' b]", None),
        ("['a' ... 'b']", None),
        ("a", None),
        ("['a", None),
        (r"['\x']", None),
    ],
)
def test_printed_lists_are_read_back(value, found):
    if found is None:
        with pytest.raises(BadField):
            kvpress.texts(value, "answer")
    else:
        assert kvpress.texts(value, "answer") == found


def test_the_twins_of_pandas_are_read_back(tmp_path):
    """What kvpress does: a column of NumPy arrays through pandas."""
    pandas = pytest.importorskip("pandas")
    numpy = pytest.importorskip("numpy")
    lists = [["a", "it's"], ["long " * 30, 'q"'], ["näh", "b\nc", "\\d"]]
    arrays = [numpy.array(values, dtype=object) for values in lists]
    path = tmp_path / "p.csv"
    pandas.DataFrame({"answer": arrays}).to_csv(path, index=False)
    with path.open(encoding="utf-8", newline="") as file:
        cells = [row["answer"] for row in csv.DictReader(file)]
    assert [kvpress.texts(cell, "answer") for cell in cells] == lists


def test_records_of_one_format_join_those_of_another(tmp_path, store):
    own = lines(tmp_path / "own" / "trec.jsonl", [trec(i) for i in range(3)]).parent
    import_predictions("longbench", own, "a", store)
    doc = {"answers": ["Food"], "all_classes": ["Food", "Date"]}
    logs = [sample_log(i, doc | {"length": 1000 + i}, "Date") for i in range(3)]
    lines(tmp_path / "l" / "samples_longbench_trec_2026.jsonl", logs)
    assert import_predictions("lm_eval", tmp_path / "l", "b", store).coverage == ()
    assert set(scores(store, "b").values()) == {0}


def test_key_phrases_of_another_needle(tmp_path, store):
    """An answer in other words is right if it holds what was asked for."""
    other = "\nThe lamp on the third floor burns until nine.\n"
    rows = [
        needle(1000, 0, "It burns till nine, on the third floor.", needle=other),
        needle(1000, 50, "Nobody knows.", needle=other),
    ]
    path = lines(tmp_path / "n.jsonl", rows)
    import_predictions("needle_kamradt", path, "whole", store)
    assert set(scores(store, "whole").values()) == {0}
    told = RunStore(tmp_path / "told")
    phrases = ("third floor", "Nine")
    report = import_predictions("needle_kamradt", path, "a", told, phrases=phrases)
    assert report.notes == ()
    assert list(scores(told).values()) == [1, 0]
    with pytest.raises(EvalkitError, match=r"n\.jsonl:1: no key phrase 'fourth' in the needle"):
        import_predictions("needle_kamradt", path, "b", told, phrases=("fourth",))
    with pytest.raises(EvalkitError, match="a key phrase is empty"):
        import_predictions("needle_kamradt", path, "b", told, phrases=(" ",))
    qasper = lines(tmp_path / "qasper.jsonl", [qa(0)])
    with pytest.raises(EvalkitError, match="no needle in it"):
        import_predictions("longbench", qasper, "b", told, phrases=("nine",))
