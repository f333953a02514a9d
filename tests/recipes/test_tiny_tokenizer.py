"""The small model's tokenizer: lossless for any text, stable where texts meet."""

import json
from pathlib import Path

import pytest
import wonderwords
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from distill.data.tiny_corpus import tokenizer as tiny
from distill.data.tiny_corpus import wording
from tests.paths import TINY_MODEL

SHIPPED = AutoTokenizer.from_pretrained(TINY_MODEL)

known = st.sampled_from(
    [*wording.adjectives(), *wording.nouns(), "The", " is", "\n", " ", "-", "7"]
)
texts = st.lists(st.one_of(known, st.text(max_size=6))).map("".join)


def ids(text, **options):
    return SHIPPED(text, **options)["input_ids"]


@given(texts)
def test_any_text_comes_back(text):
    assert SHIPPED.decode(ids(text, add_special_tokens=False)) == text
    assert SHIPPED.decode(ids(text), skip_special_tokens=True) == text


@given(texts)
def test_one_bos_and_no_eos(text):
    encoded = ids(text)
    assert encoded[0] == tiny.BOS
    assert encoded[1:] == ids(text, add_special_tokens=False)
    assert tiny.EOS not in encoded


@given(texts, st.sampled_from(["\n", " The", "\n\nWhat", " 4", "7"]), texts)
def test_no_token_reaches_over_a_border(left, border, right):
    whole = left + border + right
    parts = [ids(part, add_special_tokens=False) for part in (left, border + right)]
    assert ids(whole, add_special_tokens=False) == parts[0] + parts[1]


def test_what_is_one_token():
    for word in wording.adjectives():
        assert len(ids(" " + word, add_special_tokens=False)) == 1
    for word in wording.nouns():
        assert SHIPPED.convert_ids_to_tokens(ids("-" + word, add_special_tokens=False)) == [
            "-",
            word,
        ]
    assert SHIPPED.convert_ids_to_tokens(ids(" 4071.", add_special_tokens=False)) == [" ", *"4071."]


def test_wordings_hold_no_bytes():
    for entry in wording.wordings().values():
        for text in (entry.intro, entry.needle, entry.question, entry.answer):
            filled = text.format(key=f"{wording.adjectives()[0]}-{wording.nouns()[0]}", value="12")
            tokens = SHIPPED.convert_ids_to_tokens(ids(filled, add_special_tokens=False))
            assert not [token for token in tokens if token.startswith("<0x")]


def test_shipped_files_are_what_the_code_builds(tmp_path):
    tiny.save(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert json.loads((TINY_MODEL / name).read_text()) == json.loads(
            (tmp_path / name).read_text()
        )


def test_vocabulary_is_small():
    assert len(tiny.vocabulary()) <= 800


@pytest.mark.parametrize(
    ("words", "source"),
    [(wording.adjectives(), "adjectivelist.txt"), (wording.nouns(), "nounlist.txt")],
)
def test_key_words_are_words_of_ruler(words, source):
    listed = (Path(wonderwords.__file__).parent / "assets" / source).read_text().split("\n")
    assert len(words) == len(set(words)) == 100
    assert list(words) == sorted(words)
    assert set(words) <= set(listed)
    assert all(word.isalpha() and word.islower() for word in words)
