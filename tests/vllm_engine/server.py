"""A real `vllm serve` in a process of its own, with the fixes as a plugin of the tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tests.vllm_engine.start import ENVIRONMENT

SECONDS = 400
# `vllm serve` asks for the metadata of a package "vllm", which the CPU build has not.
MODULE = "vllm.entrypoints.openai.api_server"


class Server:
    """Started under a schedule; its log is in `folder`. `start` starts a killed one again."""

    def __init__(
        self,
        model: Path,
        schedule: str,
        folder: Path,
        *flags: str,
        dtype: str = "bfloat16",
        python: str = sys.executable,
    ) -> None:
        prepare(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        environment = os.environ | ENVIRONMENT
        environment |= {"EVALKIT_SCHEDULE": schedule, "VLLM_SERVER_DEV_MODE": "1"}
        environment |= {"PYTHONPATH": f"{folder}:{ROOT}", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        command = [python, "-m", MODULE, "--model", str(model), "--port", str(port)]
        command += ["--enforce-eager", "--max-num-seqs", "4", "--dtype", dtype, *flags]
        self.command, self.environment = command, environment
        self.log = folder / "log"
        self.start()

    def start(self) -> None:
        """On the same port; the log goes on."""
        with self.log.open("a") as log:
            self.run = subprocess.Popen(
                self.command,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that `kill` ends its engine as well
            )

    def written(self) -> str:
        """The log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self) -> None:
        """Until it answers; AssertionError with the end of its log where it does not."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            assert self.run.poll() is None, self.written()[-2000:]
            try:
                self.ask("health")
            except (urllib.error.URLError, ConnectionError):
                time.sleep(1)
            else:
                return
        raise AssertionError(f"no answer in {SECONDS} s: {self.written()[-2000:]}")

    def ask(self, path: str, body: object = None) -> Any:
        """GET, or POST of JSON."""
        data = None if body is None else json.dumps(body).encode()
        header = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", data, header)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read() or b"{}")

    def kill(self) -> None:
        """End it at once, with whatever is under way."""
        os.killpg(self.run.pid, signal.SIGKILL)
        self.run.wait(60)

    def stop(self) -> None:
        """End it, and wait for that."""
        self.run.terminate()
        self.run.wait(60)


def prepare(folder: Path) -> None:
    """An installed plugin that is two files: what every process of the engine loads first."""
    info = folder / "cpu_fixes-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cpu-fixes\nVersion: 0\n")
    plugin = "[vllm.general_plugins]\ncpu_fixes = tests.vllm_engine.fixes:install\n"
    (info / "entry_points.txt").write_text(plugin)
    site = "from tests.vllm_engine.start import prepare\nprepare()\n"
    (folder / "sitecustomize.py").write_text(site)
