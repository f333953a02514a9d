"""Results of HELMET."""

import json

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.importers import import_predictions
from evalkit.scorers import score
from tests.importers.files import helmet, scores


def result(folder, data_set, *records, model="m", test="validation_4096"):
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{data_set}_v1_{test}_in4096_size100_shots2_sampFalsemax50min0t0.0p1.0_chatFalse_42"
    content = {
        "args": {"model_name_or_path": model},
        "data": records,
        "metrics": {"ruler_recall": [1.0]},
        "averaged_metrics": {"ruler_recall": 100.0},
    }
    (folder / f"{name}.json").write_text(json.dumps(content, indent=4))
    (folder / f"{name}.json.score").write_text("{}")
    return folder


def test_ruler_recall_and_questions(tmp_path, store):
    folder = tmp_path / "m"
    result(folder, "ruler_niah_mk_2", helmet(0), helmet(1, output="no"))
    result(folder, "ruler_niah_mv", helmet(0, answer=["12", "34"], output="12 and 35"))
    result(folder, "ruler_qa_1", helmet(0))
    result(folder, "json_kv", helmet(0, answer="k-7", output="Corresponding value: k-7"))
    deep = [helmet(0, id="q", index=None, depth=d) for d in (0.0, 0.5)]
    result(folder, "kilt_nq", *deep, helmet(1, answer=[["a"], ["The Name 1"]]))
    label = helmet(0, answer="12", output="label: 12", parsed_output="12")
    result(folder, "icl_trec_fine_6400shot_balance", label)
    story = helmet(0, index=None, answer=["a name zero"], parsed_output="Name zero")
    result(folder, "narrativeqa_130772", story, test="")
    choice = helmet(0, answer=["B", "B. Paris"], output="B. Paris")
    result(folder, "infbench_choice_eng_130862", choice | {"parsed_output": "B. Paris"}, test="")
    result(folder, "msmarco_rerank_psg", helmet(0))
    report = import_predictions("helmet", folder, "a", store)
    assert [str(problem).partition(": ")[2] for problem in report.problems] == [
        "no data set of HELMET that is scored here; left out"
    ]
    assert "helmet/narrativeqa@4096 is scored by qa_f1; HELMET: judged by GPT-4" in report.notes
    found = scores(store)
    (story_id,) = [i for i in found if i.startswith("helmet/narrativeqa@4096/")]
    assert found.pop(story_id) == 1  # of "Name zero", not of "Answer: Name zero"
    assert found == {
        "niah_multikey_2@4096/0": 1,
        "niah_multikey_2@4096/1": 0,
        "niah_multivalue@4096/0": 0.5,
        "qa_1@4096/0": 1,
        "helmet/json_kv@4096/0": 1,
        "helmet/nq@4096/q/0": 1,
        "helmet/nq@4096/q/0.5": 1,
        "helmet/nq@4096/1": 1,
        "helmet/icl_trec_fine@4096/0": 1,
        "helmet/infbench_choice@4096/0": 1,
    }
    items = store.read_items()
    assert items["helmet/nq@4096/q/0"].cluster == items["helmet/nq@4096/q/0.5"].cluster


def test_two_runs_are_joined_by_question_in_any_order(tmp_path, store):
    result(tmp_path / "1", "kilt_popqa_3", *(helmet(i) for i in range(3)))
    result(tmp_path / "2", "kilt_popqa_3", *(helmet(i, output="no") for i in (2, 0, 1)))
    import_predictions("helmet", tmp_path / "1", "a", store)
    assert import_predictions("helmet", tmp_path / "2", "b", store).coverage == ()
    assert set(scores(store, "b").values()) == {0}


def test_a_question_twice_is_two_samples(tmp_path, store):
    twice = [helmet(0, id=7, index=None), helmet(0, id=7, index=None)]
    import_predictions("helmet", result(tmp_path / "1", "kilt_nq", *twice), "a", store)
    assert list(scores(store)) == ["helmet/nq@4096/7", "helmet/nq@4096/7#2"]


def test_broken_files(tmp_path, store):
    folder = result(
        tmp_path / "m", "json_kv", helmet(0), 7, helmet(1, answer=None), helmet(2, output=3)
    )
    (folder / "kilt_nq_v1_x_in4096_size9.json").write_text('{"data": {}}')
    report = import_predictions("helmet", folder, "a", store)
    assert [str(problem).partition(".json: ")[2] for problem in report.problems] == [
        "data[1]: not an object; left out",
        "data[2].answer: null; left out",
        "data[3].output: a number, not text; counted as an error",
        "data: no list in the file; left out",
    ]
    assert scores(store) == {"helmet/json_kv@4096/0": 1, "helmet/json_kv@4096/2": 0}
    result(folder, "json_kv", helmet(0), test="other")
    with pytest.raises(EvalkitError, match="both have helmet/json_kv@4096: name the files of one"):
        import_predictions("helmet", folder, "b", store)
    other = result(result(tmp_path / "two", "json_kv", helmet(0)), "kilt_nq", helmet(0), model="n")
    with pytest.raises(EvalkitError, match="files of 2 runs"):
        import_predictions("helmet", other, "b", store)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.json").write_text("{}")
    with pytest.raises(EvalkitError, match="no result of a data set that is scored here"):
        import_predictions("helmet", tmp_path / "none", "b", store)


@pytest.mark.parametrize(
    ("answer", "gold", "official", "strict"),
    [
        ("It is the Eiffel Tower!", "Eiffel tower", 1, 1),
        ("a party", "art", 1, 0),
        ("twenty-one", "twentyone", 1, 0),
        ("Rome", "Paris", 0, 0),
    ],
)
def test_substring_match(answer, gold, official, strict):
    assert score("substring_match", answer, (gold, "Oslo")) == official
    assert score("substring_match", answer, (gold, "Oslo"), mode="strict") == strict
