"""The frozen model of a distillation, and what identifies it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from distill.errors import DistillError
from evalkit.dsa import ReuseSchedule, UnsupportedModelError
from evalkit.dsa.families.sites import indexer_sites

HASHED_BYTES = 2**30  # larger weight files count by name, size and header
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def load_model(name: str, dtype: str, device: torch.device | str = "cpu") -> Any:
    """A causal language model in eval mode, every parameter frozen.

    Raises:
        DistillError: it cannot be loaded or has no indexers to distil.
    """
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    except (OSError, ValueError, ImportError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistillError(f"model {name}: cannot be loaded: {first}") from None
    model = model.to(device).eval().requires_grad_(False)
    try:
        family = indexer_sites(model).family
    except UnsupportedModelError as error:
        raise DistillError(f"model {name}: {error}") from None
    if family.adapter is None:
        raise DistillError(f"model {name}: no index scores: {family.no_features}")
    return model


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model.

    Raises:
        DistillError: there is none.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistillError(f"model {name}: no tokenizer: {first}") from None


def trained_layers(schedule: ReuseSchedule, first: str) -> tuple[int, ...]:
    """Full layers (ordinals) whose indexers train: those that serve another layer.

    Args:
        schedule: the arm.
        first: ``keep`` leaves the first full layer out.

    Raises:
        DistillError: none is left.
    """
    layers = []
    for layer in schedule.full_layers:
        served = {*schedule.consumers(layer, "prefill"), *schedule.consumers(layer, "decode")}
        if served - {layer} and not (layer == schedule.full_layers[0] and first == "keep"):
            layers.append(layer)
    if not layers:
        raise DistillError(
            f"schedule {schedule}: no indexer to train, every full layer serves itself alone"
            + (" (the first one is kept: student.first)" if first == "keep" else "")
        )
    return tuple(layers)


def base_facts(name: str, model: Any) -> dict[str, Any]:
    """Name, type, revision and fingerprint of the base model."""
    return {
        "model": Path(name).name if Path(name).is_dir() else name,
        "model_type": model.config.get_text_config().model_type,
        "revision": getattr(model.config, "_commit_hash", None),
        "fingerprint": fingerprint(weight_files(name)),
    }


def weight_files(name: str) -> list[Path]:
    """Safetensors files of a directory, or of a hub model already in the cache."""
    if Path(name).is_dir():
        return sorted(Path(name).glob("*.safetensors"))
    from huggingface_hub import scan_cache_dir

    for repo in scan_cache_dir().repos:
        if repo.repo_id == name:
            newest = max(repo.revisions, key=lambda r: r.last_modified)
            return sorted(newest.snapshot_path.glob("*.safetensors"))
    return []


def fingerprint(files: Iterable[Path]) -> str:
    """sha256 over weight files: whole contents of small ones, size and header of large ones."""
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as handle:
            if size <= HASHED_BYTES:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
            else:
                (length,) = struct.unpack("<Q", handle.read(8))
                digest.update(handle.read(length))
    return digest.hexdigest()


def stored_dtypes(files: Iterable[Path]) -> dict[str, torch.dtype]:
    """Floating-point types of all tensors as the files hold them."""
    found = {}
    for path in files:
        with path.open("rb") as handle:
            (length,) = struct.unpack("<Q", handle.read(8))
            header = json.loads(handle.read(length))
        for name, entry in header.items():
            if name != "__metadata__" and entry["dtype"] in _DTYPES:
                found[name] = _DTYPES[entry["dtype"]]
    return found


def names_in_model(model: Any, layer: int) -> str:
    """Prefix of the parameter names of one layer's indexer (ordinal), dot included."""
    own: Any = indexer_sites(model).owners[layer].indexer
    for name, module in model.named_modules():
        if module is own:
            return f"{name}."
    raise DistillError(f"layer {layer}: its indexer has no name in the model")
