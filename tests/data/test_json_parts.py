"""Where the values of a JSON file are, found without parsing them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.data import json_parts
from evalkit.data.json_parts import Part, mapped, outline

scalar = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))
value = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
)


def read(path):
    """The file through its outline, every part parsed on its own."""
    with mapped(path) as data:
        return whole(data, outline(data))


def whole(data, members):
    def one(member):
        return json.loads(data[slice(*member)]) if isinstance(member, Part) else member

    if isinstance(members, dict):
        return {key: one(member) for key, member in members.items()}
    return [one(member) for member in members]


@given(content=st.one_of(st.lists(value), st.dictionaries(st.text(max_size=5), value)))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("indent", [None, 4])
def test_parts_are_what_json_reads(tmp_path_factory, content, indent):
    path = tmp_path_factory.getbasetemp() / "parts.json"
    path.write_text(json.dumps(content, indent=indent, ensure_ascii=False), encoding="utf-8")
    assert read(path) == content


def test_a_list_within_is_outlined_in_its_turn(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"args": {"m": "]"}, "data": [{"x": [1]}, 7, []], "n": 2}')
    with mapped(path) as data:
        members = outline(data)
        assert whole(data, outline(data, members["data"])) == [{"x": [1]}, 7, []]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": [1]', "not JSON"),
        ('{"a": [1]} x', "not JSON"),
        ("[{}, {]", "not JSON"),
        ('"text"', "text, not an object or a list"),
        ("{'a': {}}", "not JSON"),
    ],
)
def test_what_is_no_json_is_said(tmp_path, text, says):
    path = tmp_path / "a.json"
    path.write_text(text)
    with mapped(path) as data, pytest.raises(BadField) as error:
        outline(data)
    assert says in error.value.message


def test_much_beside_the_parts_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_parts, "MAX_LINE", 1000)
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": [0] * 2000, "b": 1}))
    assert read(path)["b"] == 1
    path.write_text(json.dumps({"a": "x" * 2000, "b": [1]}))
    with mapped(path) as data, pytest.raises(BadField, match="more than 1000 bytes"):
        outline(data)
    path.write_text("")
    with pytest.raises(EvalkitError, match="empty"):
        mapped(path)
