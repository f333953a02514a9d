"""Base checkpoints on disk: sharded ones, FP8 ones, and indexers trained on them."""

from __future__ import annotations

import json

import torch
from safetensors.torch import load_file, save_file

from distill.checkpoint.fp8 import quantise
from distill.models.load import fingerprint, weight_files
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.indexer_checkpoint import save_indexer
from evalkit.dsa.indexer_metadata import config_sha256
from tests.dsa.tiny import build

BLOCK = (16, 16)


def sharded(directory, family="deepseek_v32", size="200KB", **overrides):
    """(directory, model) of a random model in several shards, with files beside the weights."""
    model = build(family, **overrides)
    model.save_pretrained(directory, max_shard_size=size)
    (directory / "tokenizer.json").write_text("{}")
    (directory / "README.md").write_text("# base card\n")
    return directory, model


def in_fp8(directory, *, power_of_two=False):
    """Turn the projections of a saved model into FP8 with block scales, as DeepSeek ships them."""
    index = directory / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"] if index.is_file() else {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors = {}
        for name, tensor in load_file(path).items():
            if any(part in name for part in (".wq_b.", ".wk.", "_proj.", "gate_up")) and (
                tensor.dim() == 2 and "weights_proj" not in name
            ):
                values, scale = quantise(tensor, BLOCK, power_of_two=power_of_two)
                tensors[name], tensors[f"{name}_scale_inv"] = values, scale
                places[f"{name}_scale_inv"] = path.name
            else:
                tensors[name] = tensor.to(torch.bfloat16) if "weights_proj" in name else tensor
        save_file(tensors, path, metadata={"format": "pt"})
    if index.is_file():
        index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "weight_block_size": list(BLOCK),
        "scale_fmt": "ue8m0" if power_of_two else None,
    }
    (directory / "config.json").write_text(json.dumps(config))


def indexers(directory, model, base, retention="1/4", lag=0, seed=3, **facts):
    """An indexer directory with random tensors for the full layers of a uniform schedule."""
    where, generator = indexer_sites(model), torch.Generator().manual_seed(seed)
    schedule = ReuseSchedule.uniform(where.layout.layer_ids, retention, lag)
    own = {id(p): name for name, p in model.named_parameters()}
    tensors = {
        own[id(p)]: torch.randn(p.shape, generator=generator).to(p.dtype)
        for layer in schedule.full_layers
        for p in where.owners[layer].indexer.parameters()
    }
    known = {
        "model": "tiny",
        "fingerprint": fingerprint(weight_files(str(base))),
        "config_sha256": config_sha256(base / "config.json"),
    } | facts
    save_indexer(directory, tensors, schedule, base=known, card="# distilled\n")
    return schedule, tensors
