"""A real `vllm serve` under the plugin: what its API tells, and how a wrong schedule ends it."""

from __future__ import annotations

import pytest

from tests.vllm_engine.model import C4
from tests.vllm_engine.server import SECONDS, Server

pytestmark = pytest.mark.vllm


@pytest.fixture
def served(v4, tmp_path):
    """Starts a server of the random DeepSeek-V4 under a schedule."""
    started = []

    def start(schedule):
        flags = ("--max-model-len", "4096", "--skip-tokenizer-init")
        started.append(Server(v4, schedule, tmp_path / str(len(started)), *flags))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def test_the_server_tells_its_schedule(served):
    server = served("FSFSF lag=1")
    server.wait()
    text = "FSFSF lag=1 layers=" + ",".join(map(str, C4))
    info = server.ask("server_info?config_format=json")
    assert info["vllm_config"]["additional_config"]["evalkit_schedule"] == text
    (rank,) = server.ask("collective_rpc", {"method": "evalkit_schedule"})["results"]
    assert rank["schedule"] == text
    assert rank["layers"] == list(C4)
    assert f"evalkit schedule in force [{text}] rank 0, vLLM 0.32.0" in server.written()


def test_a_wrong_schedule_ends_the_start_with_one_line(served):
    server = served("SFFFF")
    assert server.run.wait(SECONDS) != 0
    lines = [line for line in server.written().splitlines() if "evalkit" in line]
    assert lines == ["evalkit: EVALKIT_SCHEDULE: layer 0 is shared: the first layer must be full"]
    assert "Traceback" not in server.written()
