"""Facts of a checkpoint without its weights in memory: layout, and a hash of what it holds."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.dsa import Layout, ScheduleError, layout
from evalkit.dsa.engine_config.released_models import known_config


def located(model: str) -> tuple[str, dict[str, str]]:
    """Name and further arguments of a checkpoint for ``from_pretrained``: a directory, a hub id or
    a ``.gguf`` file (whose weights are read back into the engine's dtype)."""
    path = Path(model)
    return (str(path.parent), {"gguf_file": path.name}) if path.suffix == ".gguf" else (model, {})


def model_config(model: str) -> Any:
    """The transformers configuration of a directory or hub id; code in it is never run.

    Raises:
        EvalkitError: there is none, or this transformers does not know the model type.
    """
    from transformers import AutoConfig

    try:
        name, more = located(model)
        return AutoConfig.from_pretrained(name, **more)
    except Exception as error:  # whatever a damaged file makes transformers raise
        raise EvalkitError(
            f"model {model}: no usable configuration: {in_one_line(error)}"
        ) from error


def model_layout(model: str) -> Layout | None:
    """Where the model's indexers are; None for a model without lightning indexer."""
    try:
        return layout(known_config(model) or model_config(model).to_dict())
    except ScheduleError:
        return None


def dense_tokens(model: str) -> int | None:
    """Longest sequence that the sparse layers read whole, so that no schedule can change a thing.

    `index_topk` keys; DeepSeek-V4 counts compressed keys of four tokens. None without an indexer.
    """
    try:
        config = known_config(model) or model_config(model).to_dict()
        found = layout(config)
    except (EvalkitError, ScheduleError):
        return None
    topk = (config.get("text_config") or config).get("index_topk")
    if not isinstance(topk, int):
        return None
    return topk * (4 if found.model_type == "deepseek_v4" else 1)


def weights_hash(directory: str) -> str:
    """sha256 over the names and contents of a checkpoint's weight files and configuration.

    Of a ``.gguf`` file, which holds everything, its name and content.
    """
    digest = hashlib.sha256()
    root = Path(directory)
    patterns = ("*.safetensors", "*.safetensors.index.json", "config.json")
    names = [root] if root.is_file() else sorted(p for s in patterns for p in root.glob(s))
    for path in names:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def resolve_model(name: str, base_dir: Path) -> str:
    """A model directory or .gguf file, relative to the recipe, as an absolute path; else a hub id.

    Raises:
        EvalkitError: it looks like a path and is not there.
    """
    path = Path(name).expanduser()
    candidate = path if path.is_absolute() else base_dir / path
    if candidate.is_dir() or (candidate.suffix == ".gguf" and candidate.is_file()):
        return str(candidate.resolve())
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise EvalkitError(f"model {name}: no such directory, nor a .gguf file ({candidate})")
    return name
