"""Where a model's indexers are, read from its configuration alone (no weights, no torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

# Families whose layers all bear an indexer unless `layer_types` or `indexer_types` says otherwise.
_ALL_LAYERS = ("deepseek_v32", "axk2", "glm_moe_dsa", "hy_v4", "mistral_large4_text")
_BY_LAYER_TYPE = ("dots3_note_text", "glm5_next_text", "hy_v4_vl_text")
_C4_RATIO = 4  # DeepSeek-V4 `compress_ratios`: 4 marks compressed-sparse (C4) layers


@dataclass(frozen=True, slots=True)
class Layout:
    """The indexer-bearing layers of a model.

    Attributes:
        model_type: `model_type` of the (text) configuration.
        num_layers: backbone decoder layers; MTP layers are not among them.
        layer_ids: absolute ids of the layers that the schedule's ordinals count.
        native: the schedule the checkpoint was made with (all full, unless it says otherwise).
    """

    model_type: str
    num_layers: int
    layer_ids: tuple[int, ...]
    native: ReuseSchedule


def layout(config: Mapping[str, Any]) -> Layout:
    """Layout of a model from its `config.json`.

    Raises:
        ScheduleError: the model type has no lightning indexer that is known here, or the
            configuration contradicts itself.
    """
    text = config.get("text_config") or config
    model_type = str(text.get("model_type", config.get("model_type", "?")))
    layers = int(text.get("num_hidden_layers", 0))
    if layers <= 0:
        raise ScheduleError(f"{model_type}: the configuration has no num_hidden_layers")
    ids = _indexer_ids(model_type, text, layers)
    if not ids:
        raise ScheduleError(f"{model_type}: no layer of this configuration bears an indexer")
    pattern = _native_pattern(text, layers)
    letters = "".join(pattern[i] for i in ids) if pattern else "F" * len(ids)
    return Layout(model_type, layers, ids, ReuseSchedule.from_pattern(letters, layers=ids))


def _indexer_ids(model_type: str, config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    if model_type == "deepseek_v4":
        if config.get("compress_ratios"):
            ratios = list(config["compress_ratios"])[:layers]  # later entries are MTP layers
            return tuple(i for i, ratio in enumerate(ratios) if ratio == _C4_RATIO)
        types = list(config.get("layer_types") or [])
        return tuple(i for i, t in enumerate(types[:layers]) if t == "compressed_sparse_attention")
    if model_type in _BY_LAYER_TYPE:
        types = list(config.get("layer_types") or [])
        return tuple(i for i, t in enumerate(types[:layers]) if t == "indexed_attention")
    if model_type in _ALL_LAYERS:
        return tuple(range(layers))
    raise ScheduleError(
        f"{model_type}: no lightning indexer is known for this model type"
        f" (known: {', '.join(sorted((*_ALL_LAYERS, *_BY_LAYER_TYPE, 'deepseek_v4')))})"
    )


def _native_pattern(config: Mapping[str, Any], layers: int) -> str | None:
    """F/S over absolute layers, as transformers reads it; None where the model has no sharing."""
    types = config.get("indexer_types")
    if types:
        if len(types) < layers:
            raise ScheduleError(f"indexer_types has {len(types)} entries for {layers} layers")
        return "".join("S" if t == "shared" else "F" for t in types[:layers])
    return None
