"""Sizes of a model, from its configuration alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from distill.errors import DistillError
from distill.models.causal_lm import CausalLM, decoder_config_of
from distill.models.indexers import indexer_at
from evalkit.dsa import ReuseSchedule, UnsupportedModelError
from evalkit.dsa.families.sites import indexer_sites

FP32 = 4
BLOCK = (128, 128)  # values that share an FP8 scale

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True, slots=True)
class ModelSizes:
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
        masked_heads: heads whose scores exist for all pairs of tokens, where attention is masked;
            0 where it gathers the selected keys.
        quantised: parameters that the checkpoint holds in FP8; they are dequantised as they load.
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
    masked_heads: int
    quantised: int = 0

    def stored(self, itemsize: int) -> int:
        """Bytes of the checkpoint, `itemsize` per parameter that is not in FP8."""
        scales = self.quantised * FP32 // (BLOCK[0] * BLOCK[1])
        return (self.parameters - self.quantised) * itemsize + self.quantised + scales


def meta_model(config: PretrainedConfig) -> CausalLM:
    """The model of a transformers configuration on the meta device: names and sizes, no weights."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return cast(CausalLM, AutoModelForCausalLM.from_config(config))


def sizes_of(model: CausalLM) -> tuple[ModelSizes, ReuseSchedule]:
    """Sizes of a model, which may be on the meta device, and its native schedule.

    Raises:
        DistillError: the model type has no indexer that is known here.
    """
    try:
        sites = indexer_sites(model)
    except UnsupportedModelError as error:
        raise DistillError(str(error)) from None
    text = decoder_config_of(model)
    indexer = indexer_at(sites, 0)
    by_layer = [_count(layer) for layer in cast(nn.ModuleList, sites.root.layers)]
    whole = _count(model)
    active = whole
    if experts := getattr(text, "n_routed_experts", None):
        named = sites.root.named_parameters()
        routed = sum(p.numel() for n, p in named if ".experts." in n)
        active -= round(routed * (1 - text.num_experts_per_tok / experts))
    heads = int(text.num_attention_heads)
    values = getattr(text, "v_head_dim", None) or text.head_dim
    keys = getattr(text, "qk_head_dim", None) or text.head_dim
    sizes = ModelSizes(
        layers=len(by_layer),
        parameters=whole,
        largest_layer=max(by_layer),
        outside=whole - sum(by_layer),
        active=active,
        indexer=_count(indexer),
        hidden=int(text.hidden_size) * int(getattr(text, "hc_mult", 1) or 1),
        latent=int(getattr(text, "q_lora_rank", 0) or 0),
        heads=int(text.index_n_heads),
        width=int(text.index_head_dim),
        topk=int(text.index_topk),
        ratio=sites.layout.ratio,
        attention=heads * (keys + values),
        masked_heads=0 if sites.family.sparse else heads,
        quantised=_in_fp8(model, sites.root),
    )
    return sizes, sites.layout.native


def _in_fp8(model: CausalLM, root: nn.Module) -> int:
    """Parameters in FP8: matrices of the layers, but routers, head weights and what is named."""
    settings = getattr(model.config, "quantization_config", None) or {}
    if settings.get("quant_method") != "fp8":
        return 0
    kept = (".mlp.gate.", ".weights_proj.", *(settings.get("modules_to_not_convert") or ()))
    return sum(
        parameter.numel()
        for name, parameter in root.named_parameters(prefix="model")
        if ".layers." in name and parameter.dim() > 1 and not any(part in name for part in kept)
    )


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
