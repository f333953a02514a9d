import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.scorers import score
from tests.paths import GOLDEN, SHARED

OFFICIAL = json.loads((GOLDEN / "ruler_scoring.json").read_text())
NAMES = {"string_match_all": "ruler_all", "string_match_part": "ruler_part"}
MATCHES = ("ruler_all", "ruler_part", "needle_exact")


@pytest.mark.parametrize("case", OFFICIAL, ids=lambda case: case["prediction"][:20])
def test_golden_values_of_the_official_scorer(case):
    found = score(NAMES[case["metric"]], case["prediction"], tuple(case["refs"]))
    assert found == case["score"]


def test_there_are_golden_values_for_both_metrics():
    assert {case["metric"] for case in OFFICIAL} == set(NAMES)


@pytest.mark.parametrize(
    ("prediction", "references", "expected"),
    [
        ("It is 4821.", ("4821",), 1),
        ("4821", ("4821",), 1),
        ("**4821**", ("4821",), 1),
        ("_4821_", ("4821",), 1),
        ("是4821。", ("4821",), 1),
        ("14821", ("4821",), 0),
        ("48210", ("4821",), 0),
        ("4821b", ("4821",), 0),
        ("no. 4821 and 993", ("4821", "993", "55"), 2 / 3),
        ("4821,993", ("4821", "993"), 1),
        ("C31EDBBC-f36c", ("c31edbbc-f36c",), 1),
        ("c31edbbc-f36c0", ("c31edbbc-f36c",), 0),
        ("a+b", ("a+b",), 1),
        ("aab", ("a+b",), 0),
        ("", ("4821",), 0),
        ("14821 4821", ("4821",), 1),
    ],
)
def test_a_key_counts_only_as_a_whole(prediction, references, expected):
    assert score("needle_exact", prediction, references) == pytest.approx(expected)


def test_control_characters_of_the_ends_are_stripped_and_inner_ones_become_newlines():
    assert score("ruler_all", "\x00 a\tb \x1f", ("a\nb",)) == 1
    assert score("ruler_part", "xyz", ("q", "Y")) == 1


@given(st.text(), st.lists(st.text(min_size=1), min_size=1, max_size=4).map(tuple))
def test_scores_are_fractions_and_all_is_never_more_than_part(prediction, references):
    found = {metric: score(metric, prediction, references) for metric in MATCHES}
    assert all(0 <= value <= 1 for value in found.values())
    assert found["ruler_all"] <= found["ruler_part"]


def test_the_answer_itself_scores_one_and_another_none():
    for metric in MATCHES:
        assert score(metric, "the key is 731846", ("731846",)) == 1
        assert score(metric, "the key is 731846", ("558210",)) == 0


def test_unknown_metrics_and_missing_references_are_refused():
    with pytest.raises(EvalkitError, match=r"did you mean ruler_all\?"):
        score("ruler_al", "a", ("a",))
    with pytest.raises(EvalkitError, match="without references"):
        score("ruler_all", "a", ())


@pytest.mark.shared
def test_published_answers_of_a_real_needle_run_score_as_the_judge_did():
    """1 376 answers of the original test: both key words against a judge's 7 of 10 and more."""
    path = SHARED / "data" / "needle" / "claude-2.1_responses.jsonl"
    if not path.is_file():
        pytest.skip("needs ../shared, which is not beside this checkout")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    keys = ("dolores park", "sandwich")
    agree = [
        (score("needle_phrases", r["model_response"], keys) == 1) == (r["score"] >= 7)
        for r in records
    ]
    assert (sum(agree), len(agree)) == (1367, 1376)
