"""Plain JSON lines with fields of any name, OpenCompass, and InfiniteBench's retrieval tasks."""

from __future__ import annotations

import json

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.core.errors import EvalkitError
from evalkit.importers import import_predictions
from evalkit.run.scoring import score_run
from evalkit.run.store import RunStore
from evalkit.scorers import score
from tests.command import evalkit
from tests.importers.files import lines

KEY = "6ab6ea3e-f288-4f33-ba46-7f42bb75b03f"


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "run")


def scores(store, arm="a"):
    score_run(store)
    return {i: row.score for i, row in store.read_scores(arm).items()}


def record(i, said, gold="red fox", **more):
    return {"qid": f"q{i}", "output": said, "gold": gold, **more}


FIELDS = {"prediction": "output", "references": "gold", "id": "qid"}


def read(path, arm, store, **options):
    options = {"fields": FIELDS, "metric": "qa_f1"} | options
    return import_predictions("jsonl", path, arm, store, **options)


def test_fields_are_where_the_user_says(tmp_path, store):
    golds = ["red fox", ["no", "red fox"], 7]
    rows = [record(i, said, golds[i]) for i, said in enumerate(["a red fox", "fox", "7"])]
    report = read(lines(tmp_path / "mine.jsonl", rows), "a", store)
    assert report.tasks["mine"].records == 3
    assert scores(store) == {
        "mine/q0": 1.0,
        "mine/q1": pytest.approx(2 / 3),
        "mine/q2": 1.0,
    }
    assert store.read_items()["mine/q1"].references == ("no", "red fox")


def test_our_own_names_need_no_map(tmp_path, store):
    rows = [
        {"id": 4, "prediction": "Food", "references": "Food", "task": "kinds", "cluster": "t"}
        | {"all_classes": ["Food", "Date"], "length": 30}
    ]
    path = lines(tmp_path / "mine.jsonl", rows)
    import_predictions("jsonl", path, "a", store, metric="classification")
    (item,) = store.read_items().values()
    assert (item.sample_id, item.cluster) == ("kinds/4", "kinds/t")
    assert item.meta == {"length": 30, "all_classes": ["Food", "Date"]}
    assert scores(store) == {"kinds/4": 1.0}


def test_two_files_are_joined_by_their_ids(tmp_path, store):
    rows = [record(i, "red fox", f"red fox {i}") for i in range(4)]
    read(lines(tmp_path / "one" / "mine.jsonl", rows), "a", store)
    other = [record(i, f"red fox {i}", f"red fox {i}") for i in reversed(range(4))]
    report = read(lines(tmp_path / "two" / "mine.jsonl", other), "b", store)
    assert report.coverage == ()
    score_run(store)
    (row,) = [r for r in compare_run(store).result.rows if r.arm == "b" and r.task == "mine"]
    assert (row.n, row.score) == (4, 1.0)


def test_a_broken_line_is_named_and_loses_no_other(tmp_path, store):
    rows = [record(0, "red fox"), "{", {"qid": "q1", "gold": "x"}, record(2, "red", "")]
    rows += [record(3, None), record(4, "x", [])]
    report = read(lines(tmp_path / "mine.jsonl", rows), "a", store)
    assert [str(problem) for problem in report.problems] == [
        "mine.jsonl:2: not JSON (Expecting property name enclosed in double quotes at character 2);"
        " left out",
        "mine.jsonl:3: output: missing; left out",
        "mine.jsonl:4: gold: empty; left out",
        "mine.jsonl:5: output: null; counted as an error",
        "mine.jsonl:6: gold: an empty list; left out",
    ]
    assert scores(store)["mine/q3"] == 0.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"metric": ""}, "--metric: say how the answers are scored"),
        ({"metric": "qa_f"}, "did you mean qa_f1"),
        ({"fields": {"referenzes": "gold"}}, "--field referenzes=…: did you mean references?"),
        ({"fields": FIELDS | {"cluster": "doc"}}, r"no record has the field doc \(cluster\)"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, store, options, says):
    path = lines(tmp_path / "mine.jsonl", [record(0, "red fox")])
    with pytest.raises(EvalkitError, match=says):
        read(path, "a", store, **options)
    assert not store.exists


def test_the_command(tmp_path, capsys):
    path = lines(tmp_path / "mine.jsonl", [record(i, "red fox") for i in range(3)])
    command = ["import", "jsonl", path, "--arm", "a", "--out", tmp_path / "run"]
    fields = [word for ours, at in FIELDS.items() for word in ("--field", f"{ours}={at}")]
    assert evalkit(*command, "--metric", "qa_f1", *fields) == 0
    assert evalkit(*command, "--metric", "qa_f1", "--field", "references") == 2
    assert "--field references: write it as references=gold" in capsys.readouterr().err
    assert evalkit("import", "longbench", path, "--arm", "a", "--out", "x", "--metric", "f") == 2
    assert "--field and --metric are not for longbench" in capsys.readouterr().err


# -- OpenCompass -----------------------------------------------------------------------------------


def said(i, text=None, gold=None):
    gold = [f"answer {i}"] if gold is None else gold
    return {
        "origin_prompt": "…",
        "prediction": f"answer {i}" if text is None else text,
        "gold": gold,
    }


def compass(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({str(i): record for i, record in enumerate(records)}, indent=4))


def test_opencompass_is_joined_by_its_numbers(tmp_path, store):
    folder = tmp_path / "predictions" / "llama"
    compass(folder / "LongBench_qasper_0.json", said(0), said(1, "no"))
    compass(folder / "LongBench_qasper_1.json", said(2, gold="answer 2"))
    labels = {"answers": ["Food"], "all_classes": ["Food", "Date"]}
    compass(folder / "LongBench_trec.json", said(0, "Food", labels))
    compass(folder / "gsm8k.json", said(0))
    report = import_predictions("opencompass", folder, "a", store)
    assert [str(problem) for problem in report.problems] == [
        "gsm8k.json: no task of LongBench; left out"
    ]
    found = scores(store)
    assert found.pop("longbench/qasper/1") < 1
    assert found == {"longbench/qasper/0": 1, "longbench/qasper/2": 1, "longbench/trec/0": 1}
    compass(tmp_path / "other" / "LongBench_qasper.json", said(0), said(1), said(2))
    compass(tmp_path / "other" / "LongBench_trec.json", said(0, "Date", labels))
    report = import_predictions("opencompass", tmp_path / "other", "b", store)
    assert report.coverage == ()


def test_broken_files_of_opencompass(tmp_path, store):
    folder = tmp_path / "llama"
    compass(folder / "LongBench_qasper.json", said(0), 7, said(2, gold=[]))
    data = json.loads((folder / "LongBench_qasper.json").read_text())
    (folder / "LongBench_qasper.json").write_text(json.dumps(data | {"x": said(3)}))
    (folder / "LongBench_trec.json").write_text("[1]")
    report = import_predictions("opencompass", folder, "a", store)
    said_ = " | ".join(str(problem) for problem in report.problems)
    for part in ("x: no number of a sample", "1.prediction: ", "2.answers: an empty list"):
        assert part in said_
    assert list(store.read_samples("a")) == ["longbench/qasper/0"]
    compass(folder / "LongBench_hotpotqa_1.json", said(0))
    with pytest.raises(EvalkitError, match="the parts of hotpotqa are not all there"):
        import_predictions("opencompass", folder, "b", store)
    compass(tmp_path / "LongBench_qasper.json", said(0))
    with pytest.raises(EvalkitError, match="files of 2 runs"):
        import_predictions("opencompass", tmp_path, "b", store)


# -- InfiniteBench ---------------------------------------------------------------------------------


def test_infinitebench_is_read_task_by_task(tmp_path, store):
    folder = tmp_path / "preds"
    lines(
        folder / "preds_passkey.jsonl",
        [
            {"id": 0, "prediction": "The pass key is 71432.", "ground_truth": ["71432"]},
            {"id": 1, "prediction": "71433", "ground_truth": "71432"},
        ],
    )
    lines(folder / "preds_kv_retrieval.jsonl", [{"id": 0, "pred": f'"{KEY}"', "label": KEY}])
    lines(folder / "preds_code_debug.jsonl", [{"id": 0, "pred": "A", "label": ["f", "A"]}])
    report = import_predictions("infinitebench", folder, "a", store)
    assert scores(store) == {
        "infinitebench/kv_retrieval/0": 1.0,
        "infinitebench/passkey/0": 1.0,
        "infinitebench/passkey/1": 0.0,
    }
    assert "code_debug is no task that is scored here" in str(report.problems[0])
    lines(tmp_path / "other" / "m" / "preds_passkey.jsonl", [{"id": 0, "pred": "1", "label": "1"}])
    lines(tmp_path / "other" / "n" / "preds_passkey.jsonl", [{"id": 0, "pred": "1", "label": "1"}])
    with pytest.raises(EvalkitError, match="files of 2 runs"):
        import_predictions("infinitebench", tmp_path / "other", "b", store)


@pytest.mark.parametrize(
    ("metric", "answer", "gold", "official", "strict"),
    [
        # Official values by hand from the script's rules: the first run of ASCII digits, and words
        # between its ten separators.
        ("first_number", "71432", "71432", 1, 1),
        ("first_number", "key: 71432, I think", "71432", 1, 1),
        ("first_number", "The 5-digit key is 71432", "71432", 0, 1),
        ("first_number", "071432", "71432", 0, 0),
        ("first_number", "71432 or 71433", "71432", 1, 0.5),
        ("first_number", "no idea", "71432", 0, 0),
        ("first_number", "７１４３２", "71432", 0, 0),
        ("key_value", f'{{"{KEY}"}}', KEY, 1, 1),
        ("key_value", f"It is {KEY}.", KEY, 1, 1),
        ("key_value", f"<{KEY}>", KEY, 0, 1),
        ("key_value", KEY[:-1], KEY, 0, 0),
        ("key_value", KEY.upper(), KEY, 0, 1),
    ],
)
def test_scores_of_infinitebench(metric, answer, gold, official, strict):
    assert score(metric, answer, (gold,)) == official
    assert score(metric, answer, (gold,), mode="strict") == strict
