"""The frozen model of a distillation, and what identifies it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from torch import Tensor
from typing_extensions import TypedDict

from distill.errors import DistillError, at, first_line, require_finite
from distill.models.causal_lm import CausalLM
from distill.models.indexers import indexer_at
from evalkit.core.model_info import resolve_model
from evalkit.dsa import UnsupportedModelError
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.indexer_metadata import config_sha256

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HASHED_BYTES = 2**30  # larger weight files count by name, size and header
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


class BaseFacts(TypedDict):
    """What identifies the base model in an indexer directory.

    Attributes:
        model: name of the directory, or hub id.
        model_type: of transformers.
        revision: commit of the hub, or None.
        fingerprint: of the weight files, see `fingerprint`.
        config_sha256: of what config.json says; empty where there is none beside the weights.
    """

    model: str
    model_type: str
    revision: str | None
    fingerprint: str
    config_sha256: str


def resolve_checkpoint(name: str, base_dir: Path) -> str:
    """The checkpoint that a recipe names: an absolute path, or a hub id.

    Raises:
        EvalkitError: it looks like a path and is not there, or is a GGUF file.
    """
    checkpoint = resolve_model(name, base_dir)
    if checkpoint.endswith(".gguf"):
        raise DistillError(
            f"model {name}: a GGUF file has no indexers that can be trained; name the checkpoint"
            " (a directory of safetensors, or a hub id) that it was made of"
        )
    return checkpoint


def load_model(name: str, dtype: str, device: torch.device | str = "cpu") -> CausalLM:
    """A causal language model in eval mode, every parameter frozen.

    Raises:
        DistillError: it cannot be loaded, has no indexers to distil, or holds NaN.
    """
    from transformers import AutoModelForCausalLM

    if Path(name).is_dir():
        _require_safetensors(name)
    try:
        loaded = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise DistillError(f"model {name}: cannot be loaded: {first_line(error)}") from None
    _require_safetensors(name)
    model: CausalLM = loaded.to(device).eval().requires_grad_(False)
    try:
        family = indexer_sites(model).family
    except UnsupportedModelError as error:
        raise DistillError(f"model {name}: {error}") from None
    if family.adapter is None:
        raise DistillError(f"model {name}: no index scores: {family.no_features}")
    if any(".indexer." in n and p.itemsize == 1 for n, p in model.named_parameters()):
        raise DistillError(
            f"model {name}: transformers keeps its indexers in FP8 here, and so they cannot train;"
            " go layer by layer: `distill layerwise` dequantises"
        )
    with at(f"model {name}"):
        require_finite_tensors(model.state_dict())
    return model


def _require_safetensors(name: str) -> None:
    """Refuse pickled weights: nothing would tell which model the indexers are for."""
    if not weight_files(name):
        raise DistillError(
            f"model {name}: no safetensors files; write it anew with transformers:"
            " AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
        )


def require_finite_tensors(tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that are NaN or infinite, before anything is computed with them.

    Raises:
        NonFiniteError: names the tensor, and so its layer.
    """
    for name, tensor in tensors.items():
        require_finite(tensor, name)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model.

    Raises:
        DistillError: there is none.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:  # tokenizers raises nothing narrower at a damaged file
        raise DistillError(f"model {name}: no tokenizer: {first_line(error)}") from None


def base_facts(name: str, model: CausalLM) -> BaseFacts:
    """What identifies the base model."""
    files = weight_files(name)
    return {
        "model": Path(name).name if Path(name).is_dir() else name,
        "model_type": model.config.get_text_config().model_type,
        "revision": getattr(model.config, "_commit_hash", None),
        "fingerprint": fingerprint(files),
        "config_sha256": config_sha256(files[0].parent / "config.json") if files else "",
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
    dtypes = {}
    for path in files:
        with path.open("rb") as handle:
            (length,) = struct.unpack("<Q", handle.read(8))
            header = json.loads(handle.read(length))
        for name, entry in header.items():
            if name != "__metadata__" and entry["dtype"] in _DTYPES:
                dtypes[name] = _DTYPES[entry["dtype"]]
    return dtypes


def indexer_prefix(model: CausalLM, layer: int) -> str:
    """Prefix of the parameter names of one layer's indexer (ordinal), dot included."""
    indexer = indexer_at(indexer_sites(model), layer)
    for name, module in model.named_modules():
        if module is indexer:
            return f"{name}."
    raise DistillError(f"layer {layer}: its indexer has no name in the model")
