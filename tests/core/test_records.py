"""Records: what is read is written again byte for byte, and what is wrong is named."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.core.json_fields import BadField
from evalkit.core.records import (
    ArmEntry,
    ItemRow,
    RunRecord,
    SampleRow,
    ScheduleFacts,
    ScoreRow,
    StoppingRecord,
    TaskEntry,
)
from evalkit.dsa import ReuseSchedule

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
STOPPED = {"question": "tasks", "confidence": 0.95}
OTHERS = st.dictionaries(st.text(min_size=1, max_size=4).map(lambda name: f"x_{name}"), VALUES)
"""Keys of another version."""


def shuffled(data, draw):
    return {key: data[key] for key in draw(st.permutations(list(data)))}


@given(st.data(), OTHERS, OTHERS)
def test_a_run_is_written_as_it_was_read(data, for_run, for_arm):
    """Keys, their order, null beside absent, and what another version added."""
    schedule = ScheduleFacts.of(ReuseSchedule.uniform(8, "1/4", 1)).json()
    arm = {"name": "a", "schedule": schedule, "revision": None, "dense_tokens": 32} | for_arm
    run = {
        "format": 1,
        "tasks": [{"name": "t", "samples": 3}],
        "arms": [shuffled(arm, data.draw), {"name": "b"}],
        "recipe": {"compare": {}},
    } | for_run
    text = json.dumps(shuffled(run, data.draw), indent=2)
    assert json.dumps(RunRecord.parse(json.loads(text)).stored, indent=2) == text


def test_changes_keep_the_place_of_known_keys_and_add_others_behind():
    arm = ArmEntry.parse({"device": "cpu", "name": "a", "later": [1]})
    arm = arm.described("m", {"device": "cuda", "weights_sha256": "w"}, None, "a note", None)
    assert list(arm.stored.items()) == [
        ("device", "cuda"),
        ("name", "a"),
        ("later", [1]),
        ("model", "m"),
        ("weights_sha256", "w"),
        ("schedule", None),
        ("note", "a note"),
    ]
    assert (arm.model, arm.device, arm.note, arm.schedule) == ("m", "cuda", "a note", None)
    engaged = arm.with_engagement({"verdict": "engaged", "calls": [1, 0]})
    assert engaged.engagement == "engaged"
    assert engaged.stored["engagement"] == {"verdict": "engaged", "calls": [1, 0]}
    assert arm.engagement == ""  # the old entry stays as it was


def test_a_run_that_is_taken_up_again_keeps_its_arms_and_the_cells_of_imported_ones():
    before = RunRecord.parse(
        {
            "scoring": {"mode": "strict"},
            "arms": [{"name": "imported", "x": 1}, {"name": "a", "model": "m"}],
            "recipe": {},
            "tasks": [{"name": "theirs", "samples": 2}, {"name": "t", "samples": 1, "y": 2}],
        }
    )
    run = RunRecord.begun(
        before,
        identity={"limit": None},
        identity_sha256="i",
        recipe={"engine": {"kind": "hf"}},
        tasks=[TaskEntry.of("t", 5, {})],
        arms=["a", "b"],
        environment={"python": "3.11"},
    )
    assert run.names == ["imported", "a", "b"]
    assert run.arm("a").model == "m"
    assert [(task.name, task.samples) for task in run.tasks] == [("t", 5), ("theirs", 2)]
    assert list(run.stored) == [
        *("scoring", "arms", "recipe", "tasks"),
        *("identity", "identity_sha256", "environment"),
    ]
    assert run.section("engine") == {"kind": "hf"}
    assert (run.section("compare"), run.planned, run.is_imported) == ({}, 7, False)


def test_early_decisions_come_and_go():
    run = RunRecord.parse({"arms": [], "tasks": [], "recipe": {}, "scoring": {}})
    begun = run.with_until_decided(StoppingRecord.interrupted())
    assert begun.stored["until_decided"] == {"verdicts": {}}
    state = {"question": "tasks", "verdict": "worse", "decided_at": 3, "n": 4, "size": 9}
    state |= {"delta": -0.5, "low": -1.0, "high": -0.25}
    record = StoppingRecord.parse(
        {"question": "tasks", "confidence": 0.9, "verdicts": {"a": {"t": {"tasks": state}}}}
    )
    assert record.verdicts["a"]["t"]["tasks"].decided_at == 3
    done = begun.with_until_decided(record)
    assert done.until_decided == record
    assert done.with_until_decided(None).stored == run.stored


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("arms", None, "arms: null"),
        ("arms", {}, "arms: an object, not a list"),
        ("arms.0", 3, r"arms\[0\]: a number, not an object"),
        ("arms.0.name", None, r"arms\[0\]\.name: null"),
        ("arms.0.schedule", "F", r"arms\[0\]\.schedule: text, not an object"),
        ("arms.0.schedule.lag", True, r"arms\[0\]\.schedule\.lag: true or false, not a whole"),
        ("arms.0.schedule.source.1", "x", r"arms\[0\]\.schedule\.source\[1\]: text, not a whole"),
        ("arms.0.check", {"verdict": 1}, r"arms\[0\]\.check\.verdict: a number, not text"),
        ("arms.0.dense_tokens", 1.5, r"arms\[0\]\.dense_tokens: a number, not a whole number"),
        ("tasks.0.samples", "3", r"tasks\[0\]\.samples: text, not a whole number"),
        ("recipe", [], "recipe: a list, not an object"),
        ("environment.packages", {"numpy": 2}, r"packages\.numpy: a number, not text"),
        ("until_decided", {"verdicts": {"a": 1}}, r"until_decided\.question: missing"),
        ("until_decided", STOPPED | {"verdicts": {"a": 1}}, r"decided\.verdicts\.a: a number, not"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(path, value, message):
    schedule = ScheduleFacts.of(ReuseSchedule.uniform(4, "1/2")).json()
    run = {
        "arms": [{"name": "a", "schedule": schedule}],
        "tasks": [{"name": "t", "samples": 1}],
        "recipe": {},
        "environment": {},
    }
    node = run
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in parents:
        node = node[key]
    node[last] = value
    with pytest.raises(BadField) as error:
        RunRecord.parse(run)
    assert re.search(message, f"{error.value.field}: {error.value.message}")


@given(
    st.builds(
        SampleRow,
        *(st.text(max_size=4), st.text(max_size=4), st.none() | st.text(max_size=4)),
        *(st.none() | st.integers(), st.none() | st.integers()),
        *(st.text(st.characters(), max_size=9), st.sampled_from(["stop", "length", "error"])),
        error=st.none() | st.text(max_size=4),
        reasoning_opened=st.none() | st.booleans(),
        seconds=st.none() | st.floats(0, 9),
        extra=st.none() | st.dictionaries(st.text(max_size=3), VALUES, min_size=1),
    )
)
def test_completions_survive_their_line(row):
    assert SampleRow.parse(json.loads(json.dumps(row.json()))) == row


def test_fields_that_nobody_relies_on_may_be_anything():
    odd = {"prompt_tokens": "12", "seconds": [], "error": 3, "reasoning_opened": "yes", "extra": 1}
    needed = {"sample_id": "t/0", "task": "t", "prompt_sha256": None, "completion": "x"}
    row = SampleRow.parse({**needed, "finish_reason": "stop", **odd})
    assert (row.prompt_tokens, row.seconds, row.error, row.extra) == (None, None, None, None)
    assert row.tokens == float("inf")


def test_items_keep_what_another_version_added():
    line = {"cluster": "c", "sample_id": "t/0", "later": 1, "task": "t", "metric": "m"}
    item = ItemRow.parse({**line, "references": ["a"]})
    assert list(item.json()) == [*line, "references"]
    new = ItemRow("t/0", "t", "m", ("a",), "c", {})
    assert item == new  # as far as this version knows
    assert not item.same_as(new)
    assert item.same_gold_as(new)
    assert not item.same_gold_as(ItemRow("t/0", "t", "m", ("b",), "c", {}))


def test_scores_survive_their_line():
    row = ScoreRow("t/0", "t", "m", 0.25, "x \ud800", ("error", "length"))
    assert ScoreRow.parse(json.loads(json.dumps(row.json()))) == row
    with pytest.raises(BadField) as error:
        ScoreRow.parse({**row.json(), "score": True, "flags": []})
    assert error.value.field == "score"
