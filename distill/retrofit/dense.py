"""The dense model to convert: read from a directory, the hub or a GGUF file, or refused by name."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from distill.errors import DistillError, at
from distill.models.load import require_finite_tensors
from distill.retrofit.rotary import RotaryTable, rotary_table
from evalkit.core.errors import in_one_line

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# What libraries raise at files that are damaged, cut off, or of another kind.
_UNREADABLE = (
    *(OSError, ValueError, ImportError, KeyError, IndexError, EOFError, RuntimeError),
    *(struct.error, pickle.UnpicklingError, SafetensorError),
)
EXACT = ("llama", "mistral", "qwen2")
# What keeps other architectures from an exact conversion, by model type.
_REASONS = {
    "cohere": "its layers compute attention and feed-forward in parallel, under LayerNorm",
    "cohere2": "it has local attention windows and parallel layers",
    "gemma": "its norms scale by 1 + weight and its embeddings are rescaled",
    "gemma2": "it has soft caps and local attention windows",
    "gemma3": "it has qk-norm and local attention windows",
    "gemma3_text": "it has qk-norm and local attention windows",
    "glm4": "it rotates a part of each head and normalises twice",
    "gpt2": "it has learned positions and LayerNorm",
    "gpt_neox": "it has LayerNorm and rotates a part of each head",
    "gpt_oss": "it has attention sinks, local windows and experts",
    "granite": "it multiplies attention, residuals and logits by factors of its own",
    "llama4": "it has qk-norm, chunked attention and experts",
    "mixtral": "its feed-forward layers are experts",
    "olmo2": "it has qk-norm, and norms after the layers",
    "phi": "it has LayerNorm and rotates a part of each head",
    "phi3": "its projections are fused",
    "qwen3": "it has qk-norm",
    "qwen3_moe": "it has qk-norm and experts",
    "smollm3": "some of its layers have no rotary positions",
    "stablelm": "it has LayerNorm and rotates a part of each head",
    "starcoder2": "it has LayerNorm",
}


@dataclass(frozen=True, slots=True)
class DenseModel:
    """A dense model, loaded in fp32, and what its conversion needs of the configuration.

    Attributes:
        source: directory, hub id or GGUF file, as asked for.
        name: hub id, or the name of the directory or file; no path.
        licence: as its card or file says, or ``unknown``.
        model: the live causal language model.
        config: its configuration.
        table: rotary frequencies of one key-value head.
    """

    source: str
    name: str
    licence: str
    model: nn.Module
    config: PreTrainedConfig
    table: RotaryTable

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors by name."""
        return self.model.state_dict()

    @property
    def groups(self) -> int:
        """Number of key-value heads."""
        return int(self.config.num_key_value_heads)

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return int(self.config.num_attention_heads)

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        explicit = getattr(self.config, "head_dim", None)
        return int(explicit or self.config.hidden_size // self.heads)

    @property
    def biased(self) -> bool:
        """Whether any projection of the attention has a bias."""
        return any(".self_attn." in name and name.endswith(".bias") for name in self.tensors)


def location(name: str) -> tuple[str, dict[str, str]]:
    """Arguments of `from_pretrained` for a directory, a hub id or a GGUF file."""
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise DistillError(f"model {name}: no such file")
        return str(path.parent), {"gguf_file": path.name}
    return (str(path) if path.is_dir() else name), {}


def load_dense(name: str) -> DenseModel:
    """Load a dense model in fp32, after its configuration has shown that it converts exactly.

    Raises:
        DistillError: it cannot be read, or something of it has no exact counterpart.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    where, options = location(name)
    try:
        config = AutoConfig.from_pretrained(where, **options)
        table = checked(config)
        model, report = AutoModelForCausalLM.from_pretrained(
            where, **options, dtype=torch.float32, output_loading_info=True
        )
    except DistillError as error:
        raise DistillError(f"model {name}: {error}") from None
    except (*_UNREADABLE, StrictDataclassError) as error:
        raise DistillError(f"model {name}: cannot be loaded: {in_one_line(error)}") from None
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[problem]:
            raise DistillError(
                f"model {name}: not a plain {config.model_type} checkpoint:"
                f" {problem.replace('_', ' ')}, first {min(map(str, report[problem]))}"
            )
    model = model.eval().requires_grad_(False)
    with at(f"model {name}"):
        require_finite_tensors(model.state_dict())
    shown = name
    if options or Path(where).is_dir():
        shown = Path(name).resolve().name.removesuffix(".gguf")
    return DenseModel(name, shown, licence_of(where, options), model, config, table)


def checked(config: PreTrainedConfig) -> RotaryTable:
    """The rotary table of a configuration that converts exactly.

    Raises:
        DistillError: it does not; the message names what is in the way.
    """
    kind = config.model_type
    if kind not in EXACT:
        reason = _REASONS.get(kind, "its layers are not known to be those of Llama")
        raise DistillError(f"{kind} has no exact DSA form: {reason} (exact: {', '.join(EXACT)})")
    window = getattr(config, "sliding_window", None)
    if window is not None and window < config.max_position_embeddings:
        raise DistillError(f"local attention windows of {window} tokens have no exact DSA form")
    if getattr(config, "mlp_bias", False):
        raise DistillError("biases of the feed-forward layers have no exact DSA form")
    if config.rms_norm_eps <= 0:
        raise DistillError("rms_norm_eps of 0: the constant channel needs a positive epsilon")
    quantisation = getattr(config, "quantization_config", None)
    if quantisation is not None and not isinstance(quantisation, dict):
        quantisation = quantisation.to_dict()
    if quantisation is not None and quantisation.get("quant_method") != "gguf":
        method = quantisation.get("quant_method", "quantised")
        raise DistillError(f"quantised weights ({method}): dequantise the checkpoint first")
    return rotary_table(config)


def licence_of(where: str, options: Mapping[str, str]) -> str:
    """The licence that a model card's front matter or a GGUF file names, or ``unknown``."""
    if options:
        from gguf import GGUFReader

        field = GGUFReader(Path(where) / options["gguf_file"]).get_field("general.license")
        return str(field.contents()) if field is not None else "unknown"
    from huggingface_hub import ModelCard
    from transformers.utils import cached_file
    from yaml import YAMLError

    try:
        card = cached_file(where, "README.md", _raise_exceptions_for_missing_entries=False)
        licence = ModelCard.load(card).data.license if card else None
    except (OSError, ValueError, YAMLError):
        licence = None
    return str(licence or "unknown")
