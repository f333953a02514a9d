import hashlib
import json
import random
import uuid
from itertools import islice

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.tasks.common.word_streams import listed, numbers, pairs, read_words, uuids, wordlist


@pytest.mark.parametrize(
    ("name", "count", "sha"),
    [
        ("adjective", 910, "ec1467174de3f549"),
        ("noun", 6782, "d2e7b4a3fe536cfb"),
        ("verb", 1041, "a6b9d92624e8620d"),
    ],
)
def test_the_word_lists_are_those_of_the_pinned_package(name, count, sha):
    words = wordlist(name)
    assert len(words) == count
    assert hashlib.sha256("\n".join(words).encode()).hexdigest()[:16] == sha


def test_there_are_as_many_keys_as_officially():
    assert len(wordlist("adjective")) * len(wordlist("noun")) == 6_171_620


def test_words_from_a_text_file_and_from_json(tmp_path):
    (tmp_path / "a.txt").write_text("red\n\n blue \n", encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps(["cat", "dog"]), encoding="utf-8")
    assert read_words("a.txt", tmp_path, "adjective") == ("red", "blue")
    assert read_words("b.json", tmp_path, "noun") == ("cat", "dog")
    assert read_words(("x", "y"), tmp_path, "noun") == ("x", "y")
    assert read_words(None, tmp_path, "noun") == wordlist("noun")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("a.txt", "red\nred\n", "'red' occurs twice"),
        ("a.txt", "\n", "holds no words"),
        ("a.json", '{"a": 1}', "not a list of words"),
        ("a.json", "[1]", "not a list of words"),
        ("a.json", "[", "cannot be read"),
        ("missing.txt", None, "cannot be read"),
    ],
)
def test_a_bad_word_file_is_refused_by_name(tmp_path, file, content, says):
    if content is not None:
        (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(EvalkitError, match=says) as error:
        read_words(file, tmp_path, "noun")
    assert file in str(error.value)


def test_keys_are_distinct_until_all_are_used():
    stream = pairs(["red", "blue"], ["cat", "dog", "cow"], random.Random(1))
    assert len(set(islice(stream, 6))) == 6
    with pytest.raises(EvalkitError, match="2 adjectives and 3 nouns"):
        next(stream)


def test_numbers_have_their_digits_and_never_repeat():
    stream = numbers(2, random.Random(1))
    assert sorted(islice(stream, 90)) == [str(n) for n in range(10, 100)]
    with pytest.raises(EvalkitError, match="2 digits"):
        next(stream)


def test_uuids_are_random_uuids():
    found = list(islice(uuids(random.Random(1)), 50))
    assert len(set(found)) == 50
    assert all(uuid.UUID(value).version == 4 and str(uuid.UUID(value)) == value for value in found)


def test_lists_are_worded_as_in_ruler():
    assert [listed(["a"]), listed(["a", "b"])] == ["a", "a, and b"]
    assert listed(["a", "b", "c"]) == "a, b, and c"
