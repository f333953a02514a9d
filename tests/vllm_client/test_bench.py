"""`evalkit bench` on two real servers: an arm each, and what their prefix caches gave."""

from __future__ import annotations

import json

import pytest

from tests.command import evalkit

pytestmark = pytest.mark.vllm

INPUT, OUTPUT, REQUESTS = 300, 8, 12
LOAD = f"""
[compare]
baseline = "full"
[bench]
input_tokens = {INPUT}
output_tokens = {OUTPUT}
requests = {REQUESTS}
concurrency = 4
warmup = 1
resamples = 200
max_drift = 9.0
"""


def test_speeds_and_counters(vllm, tmp_path, capsys):
    recipe = vllm.recipe(tmp_path / "recipe.toml", "full", "lagging")
    recipe.write_text(recipe.read_text() + LOAD)
    cached = []
    for _ in range(2):  # the second time every prompt was seen before
        assert evalkit("bench", recipe, "--out", tmp_path / "run") == 0
        printed = capsys.readouterr().out
        assert "NOT EVALUATED" in printed
        assert "of the input out of the prefix cache" in printed
        arms = {a["name"]: a for a in json.loads((tmp_path / "run/bench.json").read_text())["arms"]}
        speeds = {name: arm["speed"] for name, arm in arms.items()}
        cached.append({name: speed["cached"] for name, speed in speeds.items()})
        assert {name: speed["succeeded"] for name, speed in speeds.items()} == {
            "full": 2 * REQUESTS,
            "lagging": REQUESTS,
        }
        for speed in speeds.values():
            whole = speed["measures"]["whole"]
            assert whole["output_tokens"] == pytest.approx(speed["succeeded"] * OUTPUT)
            assert 0 < whole["ttft"]["p50"] <= whole["ttft"]["p99"]
    assert all(before < 0.2 for before in cached[0].values())
    assert all(after > 0.5 for after in cached[1].values())

    rounds = [json.loads(row) for row in (tmp_path / "run/bench/rounds.jsonl").open()]
    for one in rounds:  # by the replies of `lagging`, by the counters of both
        assert one["counted"]["cache_queries"] == REQUESTS * INPUT
        told = [timing["cached_tokens"] for timing in one["timings"]]
        if one["arm"] == "full":
            assert set(told) == {None}
        else:
            assert sum(told) == one["counted"]["cache_hits"] > 0
