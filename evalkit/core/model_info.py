"""Facts of a checkpoint without its weights in memory: layout, and a hash of what it holds."""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.dsa import Layout, ScheduleError, layout
from evalkit.dsa.config_fields import text_config
from evalkit.dsa.engine_config.config_class import class_types
from evalkit.dsa.engine_config.released_models import known_config
from evalkit.dsa.families.base import UnsupportedModelError
from evalkit.dsa.files import file_sha256
from evalkit.dsa.json_types import JsonObject

if TYPE_CHECKING:
    from evalkit.dsa.transformers_model import ModelConfig, TextConfig


def located(model: str) -> tuple[str, dict[str, str]]:
    """Name and further arguments of a checkpoint for ``from_pretrained``: a directory, a hub id or
    a ``.gguf`` file (whose weights are read back into the engine's dtype)."""
    path = Path(model)
    return (str(path.parent), {"gguf_file": path.name}) if path.suffix == ".gguf" else (model, {})


def model_config(model: str) -> ModelConfig:
    """The transformers configuration of a directory or hub id; code in it is never run.

    Raises:
        EvalkitError: there is none, or this transformers does not know the model type.
    """
    from transformers import AutoConfig

    name, more = located(model)
    _refuse_malformed(Path(name) / "config.json")
    try:
        config: ModelConfig = AutoConfig.from_pretrained(name, **more)
    except Exception as error:  # whatever a damaged file makes transformers raise
        here = Path(name).is_dir()
        what = (
            "no usable configuration"
            if here
            else "no such directory, and nothing usable on the hub"
        )
        raise EvalkitError(f"model {model}: {what}: {in_one_line(error)}") from error
    return config


def positions_of(config: TextConfig) -> int | None:
    """Tokens that a model reads at most, prompt and answer together; None where it has no limit."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    return limit


def positions(model: str) -> int | None:
    """The same of a checkpoint; None, too, where it cannot be read: loading it says why."""
    try:
        return positions_of(model_config(model).get_text_config())
    except EvalkitError:
        return None


def full_config(model: str) -> JsonObject:
    """Fields of a configuration with transformers' defaults; released models need no download.

    Raises:
        EvalkitError: as `model_config`.
    """
    return known_config(model) or model_config(model).to_dict()


def written_config(model: str) -> JsonObject:
    """Fields of a checkpoint's config.json as they are written, nothing derived.

    Of a released model, those that decide its layers.

    Raises:
        EvalkitError: there is no config.json, or it is damaged.
    """
    known = known_config(model)
    if known is not None:
        return known
    if Path(model).suffix == ".gguf":
        return text_config(model_config(model).to_dict())
    path = Path(model) / "config.json"
    if not path.is_file():
        from huggingface_hub import hf_hub_download

        try:
            path = Path(hf_hub_download(model, "config.json"))
        except (OSError, ValueError) as error:
            raise EvalkitError(f"model {model}: no config.json: {in_one_line(error)}") from None
    return text_config(read_config(path))


def read_config(path: Path) -> JsonObject:
    """A config.json.

    Raises:
        EvalkitError: it cannot be read, or is no JSON object.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EvalkitError(f"{path}: not a JSON file: {in_one_line(error)}") from None
    if not isinstance(config, dict):
        raise EvalkitError(f"{path}: not a JSON object")
    return config


def _refuse_malformed(path: Path) -> None:
    """Raise for reuse fields that a configuration class would fail on without naming them."""
    if not path.is_file():
        return
    fields = text_config(read_config(path))
    try:
        class_types(str(fields.get("model_type", "")), fields, 1)
    except ScheduleError as error:
        raise EvalkitError(f"{path}: {error}") from None


def model_layout(model: str) -> Layout | None:
    """Which layers of a model have an indexer; None for a model without lightning indexer.

    Raises:
        EvalkitError: no usable configuration.
    """
    fields = full_config(model)
    try:
        return layout(fields)
    except UnsupportedModelError:
        return None
    except ScheduleError as error:
        raise EvalkitError(f"model {model}: {error}") from None


def dense_tokens(model: str) -> int | None:
    """Longest sequence that the indexers select whole: no schedule can change a shorter one.

    None without an indexer, and where the configuration cannot be read.
    """
    try:
        places = model_layout(model)
    except EvalkitError:
        return None
    return None if places is None else places.dense_tokens


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
        digest.update(bytes.fromhex(file_sha256(path)))
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
    meant = _meant(candidate)
    hint = f"; did you mean {meant}?" if meant else ""
    is_path = path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1
    if is_path or (meant and known_config(name) is None):
        raise EvalkitError(f"model {name}: no such directory, nor a .gguf file ({candidate}){hint}")
    return name


def _meant(path: Path) -> Path | None:
    """What lies beside a path that is not there, under almost the same name."""
    if not path.parent.is_dir():
        return None
    names = [entry.name for entry in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
    return path.parent / close[0] if close else None
