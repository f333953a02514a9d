"""Equality with the official LongBench scorer: invented records here, published runs beside us."""

import json

import pytest

from evalkit.scorers import score
from evalkit.scorers.choice import official_letter, strict_letter
from tests.paths import GOLDEN, SHARED
from tests.scorers.longbench import lines, scored

VECTORS = json.loads((GOLDEN / "longbench_metrics.json").read_text(encoding="utf-8"))
INVENTED = lines(GOLDEN / "longbench_invented.jsonl")
LETTERS = json.loads((GOLDEN / "longbench_v2_extraction.json").read_text(encoding="utf-8"))
RUNS = ("llama3-8b-instruct", "llama3-8b-instruct_S21-22-23-24")
NEEDED = "needs ../shared, which is not beside this checkout"
# Where the official code exceeds the recursion limit, the value that it would have computed.
TRUE_ROUGE = 0.3333333283333334


@pytest.mark.parametrize("backend", ["difflib", "levenshtein"])
@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["task"])
def test_vectors_of_the_official_scorer(case, backend):
    expected = TRUE_ROUGE if "recursion" in case.get("note", "") else case[f"official_{backend}"]
    found = scored(
        case["task"],
        case["prediction"],
        case["answers"],
        case["all_classes"],
        edit_distance=backend,
    )
    assert found == pytest.approx(expected, abs=1e-12)


def test_there_is_a_vector_of_every_metric():
    assert len(VECTORS) == 57
    assert {case["metric"].removesuffix("_score") for case in VECTORS} == {
        "qa_f1", "qa_f1_zh", "rouge", "rouge_zh", "classification", "count", "retrieval",
        "retrieval_zh", "code_sim",
    }  # fmt: skip


@pytest.mark.parametrize("backend", ["difflib", "levenshtein"])
def test_invented_answers_score_as_in_the_official_code(backend):
    """153 noisy answers to invented gold, scored once with the official code."""
    for record in INVENTED:
        found = scored(
            record["task"],
            record["prediction"],
            record["answers"],
            record["all_classes"],
            edit_distance=backend,
        )
        assert found == pytest.approx(record[f"official_{backend}"], abs=1e-12), record


@pytest.mark.parametrize("case", LETTERS, ids=lambda case: case["response"][:20])
def test_letters_of_multiple_choice_answers(case):
    assert official_letter(case["response"]) == case["official"]
    assert strict_letter(case["response"]) == case["strict"]


@pytest.mark.shared
@pytest.mark.parametrize("run", RUNS)
def test_published_runs_score_the_same_sample_by_sample(run):
    """4 750 answers: every sample to 1e-9, every published cell to two decimals."""
    folder = SHARED / "data" / "longbench_predictions" / run
    if not folder.is_dir():
        pytest.skip(NEEDED)
    official = json.loads((folder / "per_sample_official.json").read_text())
    published = json.loads((folder / "result.json").read_text())
    assert len(published) == 21
    for task, cell in published.items():
        rows = lines(folder / f"{task}.jsonl")
        for backend in official:
            if task not in official[backend]:
                continue
            found = [
                scored(task, r["pred"], r["answers"], r["all_classes"], edit_distance=backend)
                for r in rows
            ]
            assert found == pytest.approx(official[backend][task], abs=1e-9), task
            if backend == "difflib":
                assert round(100 * sum(found) / len(found), 2) == cell, task


@pytest.mark.shared
def test_published_multiple_choice_answers_are_read_the_same():
    path = SHARED / "data" / "longbench_v2" / "predictions_exaone-3.5-32b.jsonl"
    if not path.is_file():
        pytest.skip(NEEDED)
    rows = lines(path)
    assert [official_letter(row["response"]) for row in rows] == [row["pred"] for row in rows]
    right = [score("choice", row["response"], (row["answer"],)) for row in rows]
    assert (len(rows), round(100 * sum(right) / len(rows), 1)) == (502, 29.5)
