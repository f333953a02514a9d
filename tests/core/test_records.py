"""Every field of a run's records, given another type: an error names its path."""

from __future__ import annotations

import copy
import json

import pytest

from evalkit.core.json_fields import BadField
from evalkit.core.records import ItemRow, RunRecord, SampleRow, ScoreRow
from tests.report.runs import make

OTHERS = (None, True, -1, 2.5, "text", [], [3], {}, {"key": 3})


def paths(value, path=()):
    """Every place in a JSON value: keys and positions from the top."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in inside:
        yield (*path, key)
        if isinstance(entry, dict | list):
            yield from paths(entry, (*path, key))


def spelt(path):
    """A place as messages spell it: ``arms[0].schedule``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def with_value(data, path, value):
    changed = copy.deepcopy(data)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    store = make(tmp_path_factory.mktemp("records") / "run", n=10)
    arm = next(iter(sorted((store.path / "arms").iterdir())))

    def first(path):
        return json.loads(path.read_text("utf-8").split("\n")[0])

    return {
        RunRecord: json.loads((store.path / "run.json").read_text("utf-8")),
        ItemRow: first(store.path / "items.jsonl"),
        SampleRow: first(arm / "samples.jsonl"),
        ScoreRow: first(arm / "scores.jsonl"),
    }


@pytest.mark.parametrize("record", [RunRecord, ItemRow, SampleRow, ScoreRow])
def test_a_field_of_another_type_is_named_by_its_path(record, stored):
    data, refused = stored[record], set()
    record.parse(data)
    for path in paths(data):
        for other in OTHERS:
            try:
                record.parse(with_value(data, path, other))
            except BadField as error:
                # The place itself, one inside the value that took its place, or the whole list.
                place, named = spelt(path), error.field
                assert named, (path, other, error)
                assert named.startswith(place) or place.startswith(named), (path, other, error)
                refused.add(spelt(path))
    assert refused


@pytest.mark.parametrize("record", [RunRecord, ItemRow, SampleRow, ScoreRow])
def test_what_a_later_version_adds_does_not_disturb(record, stored):
    data = stored[record]
    assert record.parse({**data, "from_a_later_version": {"x": [1]}}).__class__ is record


def test_what_readers_rely_on_is_required(stored):
    for record, name in (
        (RunRecord, "arms"),
        (ItemRow, "references"),
        (SampleRow, "completion"),
        (ScoreRow, "score"),
    ):
        data = {key: value for key, value in stored[record].items() if key != name}
        with pytest.raises(BadField) as error:
            record.parse(data)
        assert error.value.field == name
