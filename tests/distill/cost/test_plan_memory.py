"""distill plan against the peak memory of a step that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peaks are read from /proc")
@pytest.mark.parametrize(("family", "length"), [("v32", 4096), ("v4", 4096)])
def test_the_plan_is_within_a_quarter_of_the_measured_peak(family, length):
    command = [sys.executable, "benchmarks/plan_memory.py", "--cell", family, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    cell = json.loads(done.stdout.splitlines()[-1])
    assert sum(cell["planned"].values()) == pytest.approx(cell["measured"], rel=0.25), cell
