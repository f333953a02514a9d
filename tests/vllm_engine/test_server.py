"""A real `vllm serve` under the plugin: what its API tells, and how a wrong schedule ends it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.vllm_engine.model import C4
from tests.vllm_engine.start import ENVIRONMENT

pytestmark = pytest.mark.vllm

SECONDS = 400


@pytest.fixture
def served(v4, tmp_path):
    """Starts `vllm serve` in a process of its own, with the fixes as a plugin of the tests."""
    info = tmp_path / "cpu_fixes-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cpu-fixes\nVersion: 0\n")
    plugin = "[vllm.general_plugins]\ncpu_fixes = tests.vllm_engine.fixes:install\n"
    (info / "entry_points.txt").write_text(plugin)
    site = "from tests.vllm_engine.start import prepare\nprepare()\n"
    (tmp_path / "sitecustomize.py").write_text(site)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path / "log").open("w+")
    started = []

    def start(schedule):
        environment = os.environ | ENVIRONMENT
        environment |= {"EVALKIT_SCHEDULE": schedule, "VLLM_SERVER_DEV_MODE": "1"}
        environment |= {"PYTHONPATH": f"{tmp_path}:{ROOT}", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        # `vllm serve` asks for the metadata of a package "vllm", which the CPU build has not.
        module = "vllm.entrypoints.openai.api_server"
        command = [sys.executable, "-m", module, "--model", str(v4)]
        command += ["--port", str(port), "--enforce-eager", "--skip-tokenizer-init"]
        command += ["--max-model-len", "4096", "--max-num-seqs", "4", "--dtype", "bfloat16"]
        run = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        started.append(run)
        return run, f"http://127.0.0.1:{port}", log

    yield start
    for run in started:
        run.terminate()
        run.wait(60)


def asked(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read() or b"{}")


def written(log):
    log.flush()
    return Path(log.name).read_text(encoding="utf-8", errors="replace")


def test_the_server_tells_its_schedule(served):
    run, url, log = served("FSFSF lag=1")
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        assert run.poll() is None, written(log)[-2000:]
        try:
            asked(f"{url}/health")
            break
        except (urllib.error.URLError, ConnectionError):
            time.sleep(1)
    text = "FSFSF lag=1 layers=" + ",".join(map(str, C4))
    info = asked(f"{url}/server_info?config_format=json")
    assert info["vllm_config"]["additional_config"]["evalkit_schedule"] == text
    (rank,) = asked(f"{url}/collective_rpc", {"method": "evalkit_schedule"})["results"]
    assert rank["schedule"] == text
    assert rank["layers"] == list(C4)
    assert f"evalkit schedule in force [{text}] rank 0, vLLM 0.32.0" in written(log)


def test_a_wrong_schedule_ends_the_start_with_one_line(served):
    run, _, log = served("SFFFF")
    assert run.wait(SECONDS) != 0
    lines = [line for line in written(log).splitlines() if "evalkit" in line]
    assert lines == ["evalkit: EVALKIT_SCHEDULE: layer 0 is shared: the first layer must be full"]
    assert "Traceback" not in written(log)
