"""Set, sequence and phrase metrics by hand, and the phrases against a published judge."""

import json
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.scorers import score
from evalkit.scorers.sets import final_list
from tests.paths import SHARED

RESPONSES = SHARED / "data" / "needle" / "claude-2.1_responses.jsonl"
GOLD = ("a1", "b2", "c3")


@pytest.mark.parametrize(
    ("answer", "f1"),
    [
        (" [a1, b2, c3]", 1.0),
        ("[c3,b2,a1]", 1.0),
        ("Final answer: [a1, b2]", 0.8),
        ("Final answer: [a1, b2, c3, d4, e5]", 0.75),
        ("Final answer: [d4]", 0.0),
        ("Final answer: []", 0.0),
        ("", 0.0),
        ("a1, b2, c3", 1.0),
        ("`a1` `b2` **c3**.", 1.0),
        ("['a1', \"B2\", c3]", 1.0),
        ("[a1, a1, b2, c3, c3]", 1.0),
        ("[\n a1,\n b2,\n c3\n]", 1.0),
        ("Let me see [a1].\nFinal answer: [a1, b2, c3]\n[d4]", 1.0),
        ("Final answer: [d4]\nNo.\n**Final  Answer:**\n[a1, b2, c3]", 1.0),
        ("[a1, b2, c3", 1.0),
        ("[a1, b2\nand so on", 0.8),
        ("I think\nit is [a1, b2, c3]", 0.0),
    ],
)
def test_the_final_list(answer, f1):
    assert score("set_f1", answer, GOLD) == pytest.approx(f1)
    assert score("set_exact", answer, GOLD) == float(f1 == 1)


@given(st.text(), st.lists(st.text(), min_size=1).map(tuple))
def test_any_text_has_a_score_and_exact_means_an_f1_of_one(answer, gold):
    f1 = score("set_f1", answer, gold)
    assert 0 <= f1 <= 1
    assert score("set_exact", answer, gold) == float(f1 == 1)


@given(st.frozensets(st.from_regex(r"[0-9a-f]{4,8}", fullmatch=True), min_size=1, max_size=9))
def test_a_list_of_names_is_read_back(names):
    assert final_list(f"Some words.\nFinal answer: [{', '.join(names)}]") == names


REFERENCE = "kxqv The lamp stood by the mill."


@pytest.mark.parametrize(
    ("answer", "ratio"),
    [
        (REFERENCE, 1.0),
        (f"\n {REFERENCE}  ", 1.0),
        ("kxqvThe lamp stood by the mill.", 1.0),
        ("The lamp stood by the mill.", 0.0),
        ("Sure: kxqv The lamp stood by the mill.", 0.0),
        ("kxqv", 0.0),
        ("", 0.0),
        # 27 characters each; "The lamp " (9) and " by the mill." (13) are matched, then "st" or "d"
        ("kxqv The lamp shone by the mill.", 2 * (9 + 13 + 1 + 1) / 54),
    ],
)
def test_the_ratio_behind_the_required_word(answer, ratio):
    assert score("prefixed_ratio", answer, (REFERENCE,)) == pytest.approx(ratio)


def test_the_ratio_is_that_of_difflib_on_long_texts_too():
    said, gold = "abcd " * 80 + "end", "abce " * 90
    expected = SequenceMatcher(None, said.strip(), gold.strip(), autojunk=False).ratio()
    assert score("prefixed_ratio", f"w {said}", (f"w {gold}",)) == expected
    assert score("prefixed_ratio", "w b", ("w a", "w b")) == 1


def test_word_for_word():
    assert score("prefixed_exact", "kxqv The lamp\nstood by  the mill. ", (REFERENCE,)) == 1
    assert score("prefixed_exact", "kxqv the lamp stood by the mill.", (REFERENCE,)) == 0
    assert score("prefixed_exact", f"{REFERENCE} End.", (REFERENCE,)) == 0


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Eat a SANDWICH and sit in Dolores\n Park.", 1),
        ("Sit in Dolores Park.", 0),
        ("Eat a sandwich in Golden Gate Park.", 0),
        ("", 0),
    ],
)
def test_all_key_phrases_must_occur(answer, right):
    assert score("needle_phrases", answer, ("sandwich", "Dolores Park")) == right


@pytest.mark.shared
@pytest.mark.skipif(not RESPONSES.is_file(), reason="needs ../shared/data/needle")
def test_key_phrases_agree_with_the_published_judge():
    rows = [json.loads(line) for line in RESPONSES.read_text(encoding="utf-8").splitlines()]
    right = [
        score("needle_phrases", r["model_response"], ("sandwich", "Dolores Park")) for r in rows
    ]
    agree = sum(bool(own) == (row["score"] >= 7) for own, row in zip(right, rows, strict=True))
    assert (agree, len(rows)) == (1367, 1376)
