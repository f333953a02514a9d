"""A checkpoint several times larger than a memory limit is distilled under that limit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.checkpoints import save
from tests.paths import ROOT

LIMIT = 160  # MiB on top of what Python, torch and transformers take before anything is loaded

# Runs in a process of its own: the kernel refuses it more data memory than the limit.
PROGRAM = """
import resource, sys
from pathlib import Path
import torch, transformers, accelerate
from transformers import AutoModelForCausalLM, DeepseekV32ForCausalLM
from distill.config.train import DistillConfig
from distill.layerwise.setup import load_layerwise_setup
from distill.layerwise.pipeline import LayerwiseRun

torch.set_num_threads(1)
model, out, whole = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "whole"
now = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (now + int(sys.argv[4]) * 2**20,) * 2)
if whole:
    AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
else:
    config = DistillConfig.model_validate({
        "model": model, "dtype": "float32", "arm": {"retention": "1/4"},
        "data": {"length": 64, "train": 4, "held_out": 2, "calibration": 2, "shortest": 16},
        "queries": {"per_sequence": 8, "chunk_elements": 2**16},
        "train": {"steps": 2, "batch": 2, "micro_batch": 2, "evaluate_every": 2},
    })
    LayerwiseRun(load_layerwise_setup(config, out, out), out).run(save_anyway=True)
    print("done", (out / "indexer" / "indexer.safetensors").is_file())
"""


def under_the_limit(model, out, what):
    out.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model), str(out), what, str(LIMIT)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=900,
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mappings on Linux only")
def test_a_checkpoint_of_several_limits(tmp_path):
    wide = {"hidden_size": 512, "intermediate_size": 4096, "num_hidden_layers": 24}
    model = save(tmp_path / "model", mlp_layer_types=["dense"] * 24, **wide)
    size = sum(p.stat().st_size for p in model.glob("*.safetensors"))
    assert size > 3.5 * LIMIT * 2**20
    control = under_the_limit(model, tmp_path / "whole", "whole")
    assert control.returncode != 0
    assert "memory" in control.stderr.lower()
    done = under_the_limit(model, tmp_path / "layers", "layers")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "done True" in done.stdout
