"""Sizes of a model, from its configuration alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from distill.errors import DistillError
from evalkit.dsa import ReuseSchedule, UnsupportedModelError
from evalkit.dsa.families.sites import indexer_sites


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model.

    Attributes:
        layers: decoder layers.
        parameters: of the whole model.
        largest_layer: parameters of its largest decoder layer.
        outside: parameters outside of the decoder layers (embeddings, head).
        active: parameters that one token passes through, all layers.
        indexer: parameters of one indexer.
        hidden: width of the residual stream, all its copies.
        latent: width of the query latent; 0 where there is none.
        heads: index heads.
        width: of an index head.
        topk: selected keys.
        ratio: tokens per index key.
        attention: heads × (query-key width + value width) of the main attention.
    """

    layers: int
    parameters: int
    largest_layer: int
    outside: int
    active: int
    indexer: int
    hidden: int
    latent: int
    heads: int
    width: int
    topk: int
    ratio: int
    attention: int


def without_memory(config: Any) -> Any:
    """The model of a transformers configuration: names and sizes, no weights."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def shape_of(model: Any) -> tuple[Shape, ReuseSchedule]:
    """Sizes of a model, which may be without memory, and its native schedule.

    Raises:
        DistillError: the model type has no indexer that is known here.
    """
    try:
        where = indexer_sites(model)
    except UnsupportedModelError as error:
        raise DistillError(str(error)) from None
    text = model.config.get_text_config()
    root: Any = where.root
    owner: Any = where.owners[0]
    sizes = [_count(layer) for layer in root.layers]
    whole = _count(model)
    active = whole
    if experts := getattr(text, "n_routed_experts", None):
        routed = sum(p.numel() for n, p in root.named_parameters() if ".experts." in n)
        active -= round(routed * (1 - text.num_experts_per_tok / experts))
    heads = int(text.num_attention_heads)
    values = getattr(text, "v_head_dim", None) or text.head_dim
    keys = getattr(text, "qk_head_dim", None) or text.head_dim
    shape = Shape(
        layers=len(sizes), parameters=whole, largest_layer=max(sizes), outside=whole - sum(sizes),
        active=active, indexer=_count(owner.indexer),
        hidden=int(text.hidden_size) * int(getattr(text, "hc_mult", 1) or 1),
        latent=int(getattr(text, "q_lora_rank", 0) or 0),
        heads=int(text.index_n_heads), width=int(text.index_head_dim), topk=int(text.index_topk),
        ratio=int(getattr(owner.indexer, "compress_rate", 1)), attention=heads * (keys + values),
    )  # fmt: skip
    return shape, where.layout.native


def _count(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())
