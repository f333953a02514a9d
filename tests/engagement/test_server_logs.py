"""Server logs: formats are data, samples are tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.engagement.server_logs import read_log, read_log_file

LOGS = Path(__file__).parent / "logs"
SHARED = (4, 8, 12, 16, 20, 24, 28, 32, 36, 40)


def test_the_layers_that_the_first_seed_logged():
    facts = read_log_file(str(LOGS / "ascend_v4_freq2.log"))
    assert facts.schedules == [(21, 10, SHARED)]
    assert facts.overrides == [{"use_index_cache": True, "index_topk_freq": 2}]
    assert not facts.fallbacks
    assert facts.lines == 4


def test_other_layers_of_the_same_number():
    facts = read_log_file(str(LOGS / "ascend_v4_other_rule.log"))
    assert facts.schedules == [(21, 10, tuple(range(6, 43, 4)))]


def test_ranks_that_captured_the_overlapped_path():
    facts = read_log_file(str(LOGS / "lag_captured.log"), markers=["overlapped .* captured"])
    assert facts.captured == {0, 1, 2, 3}
    assert facts.markers == {"overlapped .* captured": {0, 1, 2, 3}}
    assert facts.fallbacks == []


def test_fallbacks_are_seen_and_shown():
    facts = read_log_file(str(LOGS / "lag_fallback.log"))
    assert facts.captured == {0}
    assert len(facts.fallbacks) == 1
    assert "TP1" in facts.fallbacks[0]
    own = read_log(["rank 2: path B", "all fine"], fallbacks=["path B"])
    assert own.fallbacks == ["rank 2: path B"]


def test_vllm_prints_python():
    facts = read_log_file(str(LOGS / "vllm_args.log"))
    assert facts.overrides == [{"use_index_cache": True, "index_topk_freq": 4}]


@pytest.mark.parametrize(
    "line",
    [
        "c4_layers 21 skip_layers 10 skip_layer_ids [4, 8]",
        '{"c4_layers": 21, "skip_layers": 10, "skip_layer_ids": [4, 8]}',
        "c4_layers=21 skip_layers=10 skip_layer_ids=[4,8]",
    ],
)
def test_spellings_of_a_schedule(line):
    assert read_log([line]).schedules == [(21, 10, (4, 8))]


@pytest.mark.parametrize(
    "line",
    [
        "falling back to torch attention",  # another kernel, not the schedule
        "captured CUDA graph for bs 8",
        "GET /health 200",
        "cache hit rate: 0.0, #running-req: 3",
    ],
)
def test_ordinary_lines_say_nothing(line):
    facts = read_log([line])
    assert (facts.schedules, facts.overrides, facts.captured, facts.fallbacks) == (
        [],
        [],
        set(),
        [],
    )


def test_a_log_that_is_not_there():
    with pytest.raises(EvalkitError, match="server log"):
        read_log_file("nowhere.log")
