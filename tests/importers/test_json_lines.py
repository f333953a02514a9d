"""Plain JSON lines with fields of any name, OpenCompass, and InfiniteBench's retrieval tasks."""

from __future__ import annotations

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.core.errors import EvalkitError
from evalkit.importers import import_predictions
from evalkit.run.scoring import score_run
from evalkit.scorers import score
from tests.command import evalkit
from tests.importers.files import lines, scores

KEY = "6ab6ea3e-f288-4f33-ba46-7f42bb75b03f"


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
    lines(folder / "preds_code_debug.jsonl", [{"id": 0, "pred": "A.", "label": ["f", "A"]}])
    lines(folder / "preds_math_find.jsonl", [{"id": 0, "pred": "88", "label": [88]}])
    calc = {"id": 0, "pred": "[1, 4, 9]", "label": [[1, 4, 8, 8]]}
    lines(folder / "preds_math_calc.jsonl", [calc, calc | {"id": 1, "label": [{}]}])
    lines(folder / "preds_other.jsonl", [calc])
    report = import_predictions("infinitebench", folder, "a", store)
    assert scores(store) == {
        "infinitebench/code_debug/0": 1.0,
        "infinitebench/kv_retrieval/0": 1.0,
        "infinitebench/math_calc/0": 0.5,
        "infinitebench/math_find/0": 1.0,
        "infinitebench/passkey/0": 1.0,
        "infinitebench/passkey/1": 0.0,
    }
    assert [str(problem).partition(" (")[0] for problem in report.problems] == [
        "preds_math_calc.jsonl:2: label: an object in it, not text or a number; left out",
        "preds_other.jsonl: other is no task that is scored here",
    ]
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
        ("speaker", " Ace.", ("ACE", "ACE ROTHSTEIN"), 1, 1),
        ("speaker", "It is Remo", ("GAGGI", "Remo"), 0, 1),
        ("char_f1_zh", "福气龙。", "福龙", 0.8, 0.8),  # 2 of 3 and 2 of 2 characters
        ("option", " A", ("Georgie", "A"), 1, 1),
        ("option", "Georgie", ("Georgie", "A"), 1, 1),
        ("option", "The answer is: B", ("Georgie", "B"), 1, 1),
        ("option", "I choose (B)", ("Georgie", "B"), 0, 0),
        ("option", "Because of A", ("Georgie", "B"), 1, 0),  # its first letter is the choice
        ("option", "", ("Georgie", "A"), 0, 0),
        ("code_option", "B: f", ("f", "B"), 1, 1),
        ("code_option", "The error is: `f`", ("f", "B"), 1, 1),
        ("code_option", "Option B", ("f", "B"), 0, 0),
        ("last_number", "It returns -5.", "-5", 1, 1),
        ("last_number", "-5 is returned", "-5", 0, 1),
        ("first_value", "88 is the largest", "88", 1, 1),
        ("first_value", "The 2nd is 88", "88", 0, 0.5),
        ("first_value", "0.50", "0.5", 1, 1),
        ("first_value", "88.5", "88", 0, 0),
        ("number_list", "[1, 4, 9, 8]", ("1", "4", "8", "8"), 0.5, 0.5),
        ("number_list", "07 and -3", ("7", "3"), 1, 1),
    ],
)
def test_scores_of_infinitebench(metric, answer, gold, official, strict):
    golds = gold if isinstance(gold, tuple) else (gold,)
    assert score(metric, answer, golds) == pytest.approx(official)
    assert score(metric, answer, golds, mode="strict") == pytest.approx(strict)


@pytest.mark.parametrize("metric", ["last_number", "first_value", "number_list"])
def test_gold_that_is_no_number_is_said(metric):
    with pytest.raises(EvalkitError, match=f"{metric}: the gold answer 'x' is no number"):
        score(metric, "1", ("x",))
