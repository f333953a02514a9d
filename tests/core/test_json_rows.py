"""Logs of JSON lines are read whole but for a torn end."""

from __future__ import annotations

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.files import append_jsonl, json_rows


def test_a_torn_last_line_is_left_out_and_the_next_append_cuts_it_off(tmp_path):
    path = tmp_path / "log.jsonl"
    assert json_rows(path) == []
    append_jsonl(path, [{"a": 1}, {"b": 2}])
    with path.open("a") as file:
        file.write('{"c": ')
    assert json_rows(path) == [{"a": 1}, {"b": 2}]
    append_jsonl(path, [{"d": 4}])
    assert json_rows(path) == [{"a": 1}, {"b": 2}, {"d": 4}]


@pytest.mark.parametrize("line", ["{", "3", "nonsense"])
def test_a_damaged_line_in_the_middle_is_named(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"a": 1}}\n{line}\n{{"b": 2}}\n')
    with pytest.raises(EvalkitError, match=r"log.jsonl:2: damaged"):
        json_rows(path)
