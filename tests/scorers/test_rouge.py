"""ROUGE-L: against a plain dynamic programme, by hand, and on very long texts."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.scorers import lcs, rouge, score
from evalkit.scorers.lcs import Columns, matches

WORDS = st.lists(st.sampled_from("abcde"), max_size=8)


def plain_lcs(row, column):
    """Positions of `row` in one longest common subsequence, ties as in ``rouge`` 1.0.1."""
    table = [[0] * (len(column) + 1) for _ in range(len(row) + 1)]
    for i, a in enumerate(row, start=1):
        for j, b in enumerate(column, start=1):
            longer = max(table[i - 1][j], table[i][j - 1])
            table[i][j] = table[i - 1][j - 1] + 1 if a == b else longer
    i, j, found = len(row), len(column), set()
    while i and j:
        if row[i - 1] == column[j - 1]:
            i, j = i - 1, j - 1
            found.add(i)
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found


@given(WORDS, st.lists(WORDS, max_size=4))
def test_subsequences_are_those_of_the_plain_programme(row, columns):
    found = {i for i, hit in enumerate(matches(row, Columns(columns))) if hit}
    assert found == set().union(*(plain_lcs(row, column) for column in columns))


@given(st.lists(WORDS, min_size=1, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_shortcuts_change_nothing(rows, columns):
    plain = {row[i] for row in rows for column in columns for i in plain_lcs(row, column)}
    assert rouge._union(rows, columns) == plain


@given(st.lists(WORDS, min_size=1, max_size=3), st.lists(WORDS, min_size=1, max_size=3))
def test_pieces_of_the_table_give_the_same(rows, columns):
    whole = [matches(row, Columns(columns)) for row in rows]
    stored = lcs.STORED_BYTES
    try:
        lcs.STORED_BYTES = 2
        assert [matches(row, Columns(columns)) for row in rows] == whole
    finally:
        lcs.STORED_BYTES = stored


@pytest.mark.parametrize(
    ("prediction", "gold", "official", "strict"),
    [
        ("Mira waits.", "Mira waits.", 1 - 5e-9, 1),
        ("mira waits", "Mira waits.", 0.5, 1),  # case
        ("", "Mira waits.", 0, 0),
        (".", "Mira waits.", 0, 0),
        ("Mira waits. ", "Mira waits.", 0.8, 1),  # one more empty word: 2 of 3, 2 of 2
        ("go go go stop", "go stop", 1 - 5e-9, 2 / 3),  # a word counts once officially
        ("It costs 3.5 now", "It costs 3.5 now", 1 - 5e-9, 1),
        ("b a", "a b", 0.5, 0.5),
    ],
)
def test_values_by_hand(prediction, gold, official, strict):
    assert score("rouge", prediction, (gold,)) == pytest.approx(official, abs=2e-8)
    found = score("rouge", prediction, (gold,), mode="strict")
    assert found == pytest.approx(strict, abs=1e-12)


def test_chinese_sentences_end_at_their_marks_in_strict_mode_only():
    prediction, gold = "山很高。河很清。", "河很清。山很高。"
    assert score("rouge_zh", prediction, (gold,), mode="strict") == 1
    assert score("rouge_zh", prediction, (gold,)) < 1


@pytest.mark.parametrize("sentences", [1, 20, 2000, 20000])
@pytest.mark.parametrize("mode", ["official", "strict"])
def test_texts_of_20000_words_are_scored(sentences, mode):
    source = random.Random(sentences)

    def text():
        words = [f"w{source.randrange(3000)}" for _ in range(20000)]
        size = 20000 // sentences
        return ". ".join(" ".join(words[i : i + size]) for i in range(0, 20000, size))

    prediction, gold = text(), text()
    assert 0 < score("rouge", prediction, (gold,), mode=mode) <= 1


def test_long_texts_equal_to_themselves_are_one():
    words = " ".join(f"w{i}" for i in range(20000))
    assert score("rouge", words, (words,)) == pytest.approx(1, abs=1e-8)
    assert score("rouge", words, (words,), mode="strict") == 1
