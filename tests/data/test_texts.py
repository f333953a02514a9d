"""Sentences, prose and document pools."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.data.documents import pool, read_hotpotqa, read_squad
from evalkit.data.essays import prose
from evalkit.data.sentences import split

SENTENCES = [
    "Dr. Lee met J. Smith at 3 p.m. yesterday.",
    'He said "Go!"',
    "Really?!",
    "(It was late.)",
    "They paid $3.50, i.e. Nothing much.",
    "Was it I.",
    "4 of them came, e.g. Ann vs. Bob.",
    "The end",
]


def test_sentences_end_where_a_reader_ends_them():
    assert split(" ".join(SENTENCES)) == SENTENCES


@given(st.text(alphabet='ab C.!?"\n('))
def test_no_word_is_lost(text):
    assert " ".join(split(text)).split() == text.split()


@given(st.lists(st.text(alphabet="abC.!?", min_size=1), min_size=1, max_size=60), st.data())
def test_prose_is_cut_by_words_and_opened_between_sentences(words, data):
    text = prose("\n ".join(words))
    assert text.words(0, len(words)) == " ".join(words)
    end = data.draw(st.integers(1, len(words)))
    start = data.draw(st.integers(0, end))
    assert text.words(start, end) == " ".join(words[start:end])
    ends = text.sentences(end)
    assert ends == sorted(set(ends))
    assert ends[-1] == end
    assert set(ends[:-1]) <= set(text.sentence_ends)


def test_an_empty_text_is_no_haystack():
    with pytest.raises(EvalkitError, match="empty"):
        prose(" \n")


def test_squad_leaves_out_questions_without_answer():
    def qa(question, *answers):
        texts = [{"text": answer} for answer in answers]
        return {"question": question, "answers": texts, "is_impossible": not answers}

    article = {
        "paragraphs": [
            {"context": "B two", "qas": [qa("q1", "two", "two", "B"), qa("q2")]},
            {"context": "A one", "qas": [qa("q3", "one")]},
        ]
    }
    other = {"paragraphs": [{"context": "C three", "qas": [qa("q4", "three")]}]}
    found = read_squad({"data": [article, other]})
    assert found.documents == ("A one", "B two", "C three")
    assert [(q.text, q.answers, q.gold, q.near) for q in found.questions] == [
        ("q1", ("two", "B"), (1,), (0,)),
        ("q3", ("one",), (0,), (1,)),
        ("q4", ("three",), (2,), ()),
    ]


def test_hotpotqa_shows_titles_and_shares_documents():
    one = {"question": "q1", "answer": "a", "context": [["T", ["x. ", "y."]], ["S", ["z."]]]}
    two = {"question": "q2", "answer": "b", "context": [["T", ["x. ", "y."]]]}
    found = read_hotpotqa([one, two])
    assert found.documents == ("S\nz.", "T\nx. y.")
    assert [(q.answers, q.gold, q.near) for q in found.questions] == [
        (("a",), (1, 0), ()),
        (("b",), (1,), ()),
    ]


def test_an_unknown_pool_is_refused():
    with pytest.raises(EvalkitError, match=r"unknown document set nq; known: squad, hotpotqa"):
        pool("nq")


def test_abbreviations_do_not_end_sentences():
    assert not re.search("Dr", split("Yes. Dr. No came.")[0])
