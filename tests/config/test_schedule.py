"""Schedules of recipes: frequencies by the rule of the arm's engine."""

from __future__ import annotations

import pytest

from evalkit.config.arm import ArmConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.dsa import ReuseSchedule

C4 = ReuseSchedule.uniform(range(2, 43, 2))
V32 = ReuseSchedule.uniform(61)


def arm(**fields):
    return parse({"name": "a", **fields}, ArmConfig, "recipe")


@pytest.mark.parametrize("engine", [None, "sglang", "sglang==0.5.19", "vllm", "custom"])
def test_a_frequency_means_what_the_engine_makes_of_it(engine):
    server = {} if engine is None else {"server": {"engine": engine}}
    schedule = arm(freq=4, **server).schedule(V32)
    assert schedule.full_layer_ids == (0, *range(1, 58, 4))
    moved = arm(freq=4, offset=3, **server).schedule(V32)
    assert moved.full_layer_ids == (0, 1, *range(2, 59, 4))
    assert arm(freq=4, **server).names_schedule
    assert arm(freq=2, lag=1).schedule(V32).lag == 1


def test_engines_that_count_differently():
    assert arm(freq=4, server={"engine": "prime-rl"}).schedule(V32).full_layer_ids[:3] == (0, 4, 8)
    ascend = arm(freq=2, server={"engine": "vllm-ascend"}).schedule(C4)
    assert ascend.shared_layer_ids == tuple(range(6, 43, 4))
    fork = arm(freq=2, server={"engine": "ascend-sglang-v4"}).schedule(C4)
    assert fork.shared_layer_ids == tuple(range(4, 41, 4))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"freq": 2, "retention": "1/2"}, "give one of retention and freq"),
        ({"offset": 3}, "an offset belongs to a frequency"),
        ({"freq": 0}, "greater than or equal to 1"),
    ],
)
def test_what_contradicts_itself(fields, words):
    with pytest.raises(EvalkitError, match=words):
        arm(**fields)


def test_frequencies_that_an_engine_cannot_run():
    with pytest.raises(EvalkitError, match="arm a: engines count frequencies differently"):
        arm(freq=2).schedule(C4)
    with pytest.raises(EvalkitError, match=r"arm a: vllm-v4 has no frequency rule"):
        arm(freq=2, server={"engine": "vllm"}).schedule(C4)


def test_recipes_without_a_frequency_are_recorded_as_before():
    assert not {"freq", "offset"} & set(arm(retention="1/2").model_dump(mode="json"))
    assert arm(freq=4).model_dump(mode="json")["freq"] == 4
