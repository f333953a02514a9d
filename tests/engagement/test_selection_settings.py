"""Settings that change selections: recorded, and refused where two arms differ in them."""

from __future__ import annotations

import json

import pytest

from evalkit.engagement.evidence import CheckedArm
from tests.engagement.test_check import arm, check, sglang


def entries(**settings):
    """An arm before, whose server reported these."""
    overrides = settings.pop("overrides", {})
    server = {"kind": "sglang", "settings": settings, "overrides": overrides}
    return [CheckedArm("OFF", "", {}, [server])]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("dsa_topk_backend", "torch"),
        ("enable_two_batch_overlap", True),
        ("speculative_algorithm", "EAGLE"),
    ],
)
def test_arms_that_differ_are_not_compared(paper_checkpoint, name, other):
    reports = sglang("{}", **{name: other})
    result = check(paper_checkpoint, reports, arm("freq 2"), entries(**{name: "sgl-kernel"}))
    assert result.verdict == "not engaged"
    assert f"{name} = {other!r}, and 'sgl-kernel' on OFF: it changes selections" in result.reason
    assert result.servers[0]["settings"][name] == other
    same = check(paper_checkpoint, reports, arm("freq 2"), entries(**{name: other}))
    assert same.verdict == "engaged"
    unknown = check(paper_checkpoint, reports, arm("freq 2"), entries())
    assert unknown.verdict == "engaged"


def test_overrides_of_the_same_kind(paper_checkpoint):
    reports = sglang(json.dumps({"index_topk": 1024}))
    result = check(paper_checkpoint, reports, arm("freq 2"), entries())
    assert "index_topk = 1024, and None on OFF" in result.reason
    before = entries(overrides={"index_topk": 1024})
    assert check(paper_checkpoint, reports, arm("freq 2"), before).verdict == "engaged"


def test_the_same_arm_may_be_started_otherwise(paper_checkpoint):
    reports = sglang("{}", dsa_topk_backend="torch")
    before = entries(dsa_topk_backend="sgl-kernel")
    assert check(paper_checkpoint, reports, arm("OFF"), before).verdict == "engaged"
