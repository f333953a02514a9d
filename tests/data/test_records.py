"""Malformed records name file, line and field; nothing else is lost."""

import io
import json

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.data import records
from evalkit.data.records import (
    SourceLocation,
    integer,
    one_of,
    optional_texts,
    read_lines,
    refuse,
    text,
    texts,
)

GOOD = {"input": "Who?", "answers": ["Mira"], "length": 7, "kind": "a", "classes": None}


def parse(data):
    """A record of the fields of `GOOD`."""
    return (
        text(data, "input"),
        texts(data, "answers"),
        integer(data, "length"),
        one_of(data, "kind", ("a", "b")),
        optional_texts(data, "classes"),
    )


def without(key):
    return {k: v for k, v in GOOD.items() if k != key}


CASES = [
    (b'{"input": ', "", "not JSON"),
    (b"\xff\xfe", "", "not UTF-8"),
    (b"[1]", "", "a list, not an object"),
    (b"null", "", "null, not an object"),
    (b"1" * 5000, "", "not JSON"),
    (b"[" * 100_000, "", "not JSON"),
    (without("answers"), "answers", "missing"),
    ({**GOOD, "answers": None}, "answers", "null"),
    ({**GOOD, "answers": []}, "answers", "an empty list"),
    ({**GOOD, "answers": "Mira"}, "answers", "text, not a list of texts"),
    ({**GOOD, "answers": ["Mira", 3]}, "answers[1]", "a number, not text"),
    ({**GOOD, "input": 3}, "input", "a number, not text"),
    ({**GOOD, "input": {}}, "input", "an object, not text"),
    ({**GOOD, "length": "7"}, "length", "text, not a whole number"),
    ({**GOOD, "length": 7.5}, "length", "a number, not a whole number"),
    ({**GOOD, "length": True}, "length", "true or false, not a whole number"),
    ({**GOOD, "length": -1}, "length", "negative"),
    ({**GOOD, "kind": "c"}, "kind", "'c', not one of a, b"),
    ({**GOOD, "classes": []}, "classes", "an empty list"),
    (without("classes"), "classes", "missing"),
    ({**GOOD, "input": "a\ud800b"}, "input", "a lone surrogate (U+D800) at character 1"),
]


def encoded(case):
    return case if isinstance(case, bytes) else json.dumps(case).encode()


@pytest.mark.parametrize(("bad", "field", "message"), CASES)
def test_a_bad_record_between_good_ones(bad, field, message):
    good = encoded(GOOD)
    stream = io.BytesIO(b"\n".join([good, encoded(bad), b"", good]))
    found, problems = read_lines(stream, "tide.jsonl", parse)
    assert [number for number, _ in found] == [1, 4]
    (problem,) = problems
    assert (problem.where, problem.field) == (SourceLocation("tide.jsonl", 2), field)
    assert problem.message.startswith(message)
    assert str(problem).startswith(f"tide.jsonl:2: {f'{field}: ' if field else ''}{message}")


def test_a_line_of_50_megabytes_is_left_out_in_bounded_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "tide.jsonl"
    with path.open("wb") as file:
        file.write(encoded(GOOD) + b"\n")
        for _ in range(50):
            file.write(b"x" * 2**20)
        file.write(b"\n" + encoded(GOOD))
    tracemalloc.start()
    with path.open("rb") as stream:
        found, problems = read_lines(stream, "tide.jsonl", parse)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [number for number, _ in found] == [1, 3]
    assert [str(p) for p in problems] == [f"tide.jsonl:2: longer than {records.MAX_LINE} bytes"]
    assert peak < 3 * records.MAX_LINE


def test_a_byte_order_mark_is_no_part_of_the_first_record():
    found, problems = read_lines(io.BytesIO(b"\xef\xbb\xbf" + encoded(GOOD)), "f", parse)
    assert len(found) == 1
    assert not problems


def test_refusing_names_the_first_problem_and_the_places_of_the_others():
    refuse([])
    stream = io.BytesIO(b"\n".join([b"{}"] * 9))
    _, problems = read_lines(stream, "f", parse)
    with pytest.raises(EvalkitError, match=r"^f:1: input: missing; 8 more: 2 input, 3 .* …$"):
        refuse(problems)
