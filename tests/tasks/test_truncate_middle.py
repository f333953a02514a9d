"""Truncation in the middle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.tasks.common import truncate_middle
from tests.tasks.words import WordTokenizer

TEXT = " ".join(f"w{i}" for i in range(20))


def test_short_prompts_are_left_alone():
    for way in (truncate_middle.halves, truncate_middle.joined):
        cut = way(TEXT, WordTokenizer(), 21)
        assert (cut.text, cut.tokens, cut.truncated) == (TEXT, 21, False)


def test_halves_count_the_bos_and_drop_it():
    cut = truncate_middle.halves(TEXT, WordTokenizer(), 6)
    assert cut.text == "w0 w1" + " w17 w18 w19"
    assert (cut.tokens, cut.truncated, cut.head, cut.tail) == (21, True, "w0 w1", " w17 w18 w19")
    assert (
        truncate_middle.halves(TEXT, WordTokenizer(), 7).text == cut.text
    )  # halves of an odd number


def test_joined_keeps_one_token_more_behind_an_odd_cut():
    assert truncate_middle.joined(TEXT, WordTokenizer(), 7).text == "w0 w1 w16 w17 w18 w19"
    assert truncate_middle.joined(TEXT, WordTokenizer(), 6).text == "w0 w1 w17 w18 w19"


@given(st.text(alphabet="ab \n", max_size=60), st.integers(2, 40))
def test_a_cut_prompt_is_no_longer_than_asked_and_ends_as_the_prompt_does(text, limit):
    tokenizer = WordTokenizer()
    cut = truncate_middle.halves(text, tokenizer, limit)
    assert cut.truncated == (cut.tokens > limit)
    if cut.truncated:
        assert cut.text == cut.head + cut.tail
        assert text.startswith(cut.head)
        assert text.endswith(cut.tail)
        assert len(tokenizer.encode(cut.head)) - 1 <= limit // 2


@pytest.mark.parametrize(
    ("limit", "spans", "expected"),
    [
        (100, ["w10"], True),
        (6, ["w10"], False),
        (6, ["w18"], True),
        (6, ["w10", "w18"], True),
        (6, ["W18"], True),
        (6, ["x1"], None),
        (6, ["w1"], True),  # not a part of w18: of itself
        (6, ["w"], None),
        (6, [""], None),
        (6, [], None),
    ],
)
def test_whether_gold_survives(limit, spans, expected):
    cut = truncate_middle.halves(f"w10? {TEXT} w10!", WordTokenizer(), limit + 2)
    assert truncate_middle.survives(cut, "w10? ", TEXT, " w10!", spans) is expected
