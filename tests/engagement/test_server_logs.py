"""Server logs: formats are data, samples are tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.engagement.server_logs import read_log, read_log_file

LOGS = Path(__file__).parent / "logs"
SHARED = (4, 8, 12, 16, 20, 24, 28, 32, 36, 40)


def test_the_layers_that_the_first_seed_logged():
    facts = read_log_file(str(LOGS / "ascend_v4_freq2.log"), engine="ascend-sglang-v4")
    assert facts.schedules == [(21, 10, SHARED)]
    assert facts.overrides == [{"use_index_cache": True, "index_topk_freq": 2}]
    assert not facts.fallbacks
    assert facts.lines == 4


def test_other_layers_of_the_same_number():
    facts = read_log_file(str(LOGS / "ascend_v4_other_rule.log"), engine="custom")
    assert facts.schedules == [(21, 10, tuple(range(6, 43, 4)))]


def test_ranks_that_captured_the_overlapped_path():
    facts = read_log_file(
        str(LOGS / "lag_captured.log"), markers=["overlapped .* captured"], engine="custom"
    )
    assert facts.captured == {0, 1, 2, 3}
    assert facts.markers == {"overlapped .* captured": {0, 1, 2, 3}}
    assert facts.fallbacks == []


def test_fallbacks_are_seen_and_shown():
    facts = read_log_file(str(LOGS / "lag_fallback.log"), engine="custom")
    assert facts.captured == {0}
    assert len(facts.fallbacks) == 1
    assert "TP1" in facts.fallbacks[0]
    custom = read_log(["rank 2: path B", "all fine"], fallbacks=["path B"])
    assert custom.fallbacks == ["rank 2: path B"]


def test_vllm_prints_python():
    facts = read_log_file(str(LOGS / "vllm_args.log"))
    assert facts.overrides == [{"use_index_cache": True, "index_topk_freq": 4}]


JSON = """'{"index_topk_freq": 4}'"""


# Both spellings of SGLang's arguments: an object before 0.5.19, a dictionary since.
@pytest.mark.parametrize(
    "line",
    [
        f"server_args=ServerArgs(model_path='m', json_model_override_args={JSON}, tp_size=8)",
        f"server_args={{'model_path': 'm', 'json_model_override_args': {JSON}, 'tp_size': 8}}",
        f"[09:00:00] server_args={{'a': {{'b': 1}}, 'json_model_override_args': {JSON}}}",
    ],
)
def test_arguments_of_sglang_before_and_since_0_5_19(line):
    for engine in ("", "sglang", "sglang==0.5.23", "custom"):
        assert read_log([line], engine=engine).overrides == [{"index_topk_freq": 4}]


@pytest.mark.parametrize(
    "note",
    [
        "indexer-topk capture is CUDA-only; NPU/XPU will not populate the capturer",
        "indexer-topk capture is not wired for npu backend. Disabling capturer.",
    ],
)
def test_notes_about_the_capture_of_selections(note):
    assert read_log([f"[TP0] {note}"], engine="sglang").notes == [note]


# Written by healthy servers: sampling, drivers, kernels, caches.
HEALTHY = [
    "FlashInfer is not available. Falling back to the PyTorch implementation of top-p & top-k",
    "NVML is unavailable, falling back to CUDA device index 0",
    "top_k sampling kernel not compiled, fall back to torch",
    "HiSparse shared-index prefetch is unsupported under pipeline parallelism; falling back to"
    " synchronous swap-in.",
    "Failed to overlap schedule, falling back to the normal event loop",
    "index out of range in the tokenizer cache; falling back to slow path",
]


@pytest.mark.parametrize("engine", ["", "sglang", "sglang==0.5.19", "vllm", "ascend-sglang-v4"])
def test_warnings_of_healthy_servers_spoil_no_arm(engine):
    facts = read_log(HEALTHY, engine=engine)
    assert facts.fallbacks == []
    # A build of one's own is judged by the strict pattern, and by what its arm names.
    assert read_log(HEALTHY, engine="custom").fallbacks
    assert read_log(HEALTHY, fallbacks=["NVML"], engine=engine).fallbacks == [HEALTHY[1]]


@pytest.mark.parametrize(
    "line",
    [
        "c4_layers 21 skip_layers 10 skip_layer_ids [4, 8]",
        '{"c4_layers": 21, "skip_layers": 10, "skip_layer_ids": [4, 8]}',
        "c4_layers=21 skip_layers=10 skip_layer_ids=[4,8]",
    ],
)
def test_spellings_of_a_schedule(line):
    assert read_log([line], engine="custom").schedules == [(21, 10, (4, 8))]
    assert read_log([line], engine="sglang").schedules == []  # no release writes such a line


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
    facts = read_log([line], engine="custom")
    assert (facts.schedules, facts.overrides, facts.captured, facts.fallbacks) == (
        [],
        [],
        set(),
        [],
    )


def test_a_log_that_is_not_there():
    with pytest.raises(EvalkitError, match="server log"):
        read_log_file("nowhere.log")
