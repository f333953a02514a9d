"""`transformers serve` as tests start it: one model, one port, loopback only."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TransformersServe:
    """A server process; `restart` starts it again on the same port."""

    def __init__(self, model: Path, log: Path, dtype: str = "float32") -> None:
        self.model = model
        self.log = log
        self.dtype = dtype
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(self.model)]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu"]
        command += ["--dtype", self.dtype]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    def wait(self, seconds: float = 600.0) -> None:
        """Until it answers; its log is shown when it does not."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.process is not None and self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise AssertionError(f"no server: {self.log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> TransformersServe:
        self.start()
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
