"""Predictions and reviews of evalscope."""

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.importers import import_predictions
from evalkit.run.store import RunStore
from evalkit.scorers import score
from tests.importers.files import lines, needle, prediction, review, scores

NEEDLE = needle(1000, 0)["needle"]
GRID = {"context_length": 1000, "depth_percent": 50}


def v2(folder, *reviews, predictions=()):
    lines(folder / "reviews" / "m" / "longbench_v2_short.jsonl", reviews)
    lines(folder / "predictions" / "m" / "longbench_v2_short.jsonl", predictions)
    return folder


def test_reviews_have_the_gold_and_predictions_what_was_not_reviewed(tmp_path, store):
    first = v2(tmp_path / "1", *(review(i, "AB"[i % 2]) for i in range(4)))
    report = import_predictions("evalscope", first, "a", store)
    assert report.problems == ()
    ids = [f"longbench-v2/evalscope/id{i}" for i in range(4)]
    assert scores(store) == dict.fromkeys(ids, 1)
    # the gold of an answer without a review is that of the other arms
    answers = [prediction(i, "A") for i in range(4)]
    second = v2(tmp_path / "2", review(0), predictions=answers)
    report = import_predictions("evalscope", second, "b", store)
    assert report.coverage == ()
    assert list(scores(store, "b").values()) == [1, 0, 1, 0]


def test_questions_on_one_text_are_one_unit(tmp_path, store):
    rows = [review(i) | {"messages": prediction(i)["messages"]} for i in range(4)]
    import_predictions("evalscope", v2(tmp_path / "1", *rows), "a", store)
    units = [item.cluster for item in store.read_items().values()]
    assert len(set(units)) == 2
    assert units[0] == units[1]


def test_the_needle_test_and_mrcr(tmp_path, store):
    said = "Eat a sandwich in Dolores Park."
    folder = tmp_path / "reviews" / "m"
    rows = [review(0, NEEDLE, said, **GRID), review(1, NEEDLE, "?", **GRID | {"depth_percent": 9})]
    lines(folder / "needle_haystack_english.jsonl", rows)
    facts = {"random_string_to_prepend": "aX", "n_needles": 2}
    rows = [review(0, "aXA poem", "aXA poem", **facts), review(1, "aXA poem", "A poem", **facts)]
    lines(folder / "openai_mrcr_default.jsonl", rows)
    lines(folder / "gsm8k_main.jsonl", rows)
    report = import_predictions("evalscope", tmp_path, "a", store)
    assert [str(problem) for problem in report.problems] == [
        "reviews/m/gsm8k_main.jsonl: no benchmark of evalscope that is known here (longbench_v2,"
        " needle_haystack, openai_mrcr); left out"
    ]
    assert scores(store) == {
        "kamradt_english@1000/50/1": 1,
        "kamradt_english@1000/9/1": 0,
        "mrcr_2/0": 1,
        "mrcr_2/1": 0,
    }
    phrased = RunStore(tmp_path / "phrased")
    import_predictions("evalscope", tmp_path, "a", phrased, phrases=("sandwich",))
    assert phrased.read_items()["kamradt_english@1000/50/1"].references == ("sandwich",)


def test_broken_records(tmp_path, store):
    empty = prediction(3)
    empty["model_output"]["choices"] = []
    bare = prediction(4) | {"metadata": None}
    rows = ["{", {"index": 1}, review(2, "E"), empty, bare]
    path = lines(tmp_path / "reviews" / "m" / "longbench_v2_long.jsonl", [review(0), *rows])
    report = import_predictions("evalscope", path.parent, "a", store, allow_partial=True)
    said = [str(problem) for problem in report.problems]
    assert len(said) == 5
    for problem, part in zip(
        said,
        (
            "not JSON",
            "neither a prediction (model_output) nor a review (sample_score)",
            "answer: 'E', not one of A, B, C and D",
            "model_output.choices: no choice in it; counted as an error",
            "_id: missing",
        ),
        strict=True,
    ):
        assert part in problem
    lines(tmp_path / "n" / "needle_haystack_english.jsonl", [prediction(0, **GRID)])
    with pytest.raises(EvalkitError, match="target: a prediction without its review"):
        import_predictions("evalscope", tmp_path / "n", "b", store)
    with pytest.raises(EvalkitError, match="no file of longbench_v2"):
        import_predictions("evalscope", lines(tmp_path / "x" / "y.jsonl", []).parent, "b", store)
    for run in ("1", "2"):
        v2(tmp_path / "two" / run, review(0))
    with pytest.raises(EvalkitError, match="files of 2 runs"):
        import_predictions("evalscope", tmp_path / "two", "b", store)


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("ANSWER: B", "B"),
        ("answer: **(C)**", "C"),
        ("ANSWER: A ... no. ANSWER: D, not C", "D"),
        ("ANSWER: [LETTER]\nIt is B", "B"),  # no letter at the marker: the last capital
        ("ANSWER: A, C", None),
        ("It must be X", None),
        ("nothing", None),
    ],
)
def test_the_letter_is_read_as_evalscope_reads_it(answer, letter):
    found = [c for c in "ABCD" if score("choice_line", answer, (c,)) == 1]
    assert found == ([letter] if letter else [])
    if answer == "ANSWER: B":
        assert score("choice_line", answer, ("B",), mode="strict") == 1
