"""A model sharded over two processes (FSDP2, gloo) trains the indexers that one process trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file

from distill.config.train import DistillConfig
from distill.errors import DistillError
from distill.training.fsdp import check
from tests.paths import ROOT

RECIPE = """
model = "{model}"
dtype = "float32"
[arm]
retention = "1/2"
[data]
length = 48
train = 6
held_out = 4
calibration = 2
shortest = 16
[queries]
per_sequence = 8
[student]
start = "{start}"
[train]
steps = 3
batch = 4
micro_batch = 2
evaluate_every = 3
"""


def command(recipe, out, *launch):
    options = ("train", str(recipe), "--out", str(out), "--save-anyway")
    return [sys.executable, *launch, "-m", "distill.cli", *options]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["own", "closed_form"])
def test_two_shards_equal_one_process(checkpoint, tmp_path, start):
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE.format(model=checkpoint, start=start))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    one = command(recipe, tmp_path / "one")
    subprocess.run(one, cwd=ROOT, env=env, check=True)
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    sharded = env | {"ACCELERATE_USE_CPU": "true", "ACCELERATE_USE_FSDP": "true"}
    two = command(recipe, tmp_path / "two", *launch)
    subprocess.run(two, cwd=ROOT, env=sharded, check=True)
    first, second = (
        load_file(tmp_path / name / "indexer" / "indexer.safetensors") for name in ("one", "two")
    )
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.allclose(second[name], tensor, atol=2e-4), name
    kls = [
        [
            row["kl"]
            for row in map(json.loads, (tmp_path / n / "metrics.jsonl").open())
            if "lr" in row
        ]
        for n in ("one", "two")
    ]
    assert kls[0] == pytest.approx(kls[1], rel=1e-4)


def test_uneven_shares_are_refused():
    def config(**sections):
        return DistillConfig.model_validate({"model": "x", "arm": {"retention": "1/2"}} | sections)

    check(config(data={"held_out": 16}, train={"batch": 8, "micro_batch": 2}), 4)
    with pytest.raises(DistillError, match=r"train.batch 6 does not divide by 4"):
        check(config(train={"batch": 6}), 4)
    with pytest.raises(DistillError, match="makes 3 batches of 4"):
        check(config(data={"held_out": 12}, train={"batch": 8, "micro_batch": 4}), 2)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes" / "accelerate").glob("*.yaml")))
def test_accelerate_reads_the_shipped_configurations(path):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(path))
    assert config.num_processes == yaml.safe_load(path.read_text())["num_processes"]
    if path.stem == "fsdp2":
        assert config.fsdp_config["fsdp_version"] == 2
