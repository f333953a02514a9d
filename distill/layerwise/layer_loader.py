"""One decoder layer of a checkpoint as a model of its own.

The configuration is cut to one layer and transformers builds and fills it, so that every family's
renamings and merged experts come out as in the whole model; its final norm is taken away, so that
hidden states in give hidden states out. FP8 weights are dequantised tensor by tensor on the way.
Memory: the layer's tensors as they are read, and the layer: twice one layer while it loads.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from distill.checkpoint.sharded import Checkpoint
from distill.errors import DistillError, require_finite
from distill.models.causal_lm import CausalLM
from distill.models.indexers import indexer_at
from distill.models.student import State
from evalkit.dsa import IndexerCall, UnsupportedModelError
from evalkit.dsa.call import read_call
from evalkit.dsa.families.adapter import Features
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.families.sites import IndexerSites, features_of, indexer_sites
from evalkit.dsa.layout import Layout, layout
from evalkit.dsa.overrides import override_forward
from evalkit.dsa.sparse_attention import selected_keys_gathered

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_LAYER = re.compile(r"^(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.(.*)$")
_OUTSIDE = re.compile(r"^(?:model\.)?(?:language_model\.)?(?:model\.)?([a-z_]+\.weight)$")
_VOCABULARY = 8  # of the cut model: it is fed hidden states, never tokens


class Layers:
    """The decoder layers of a checkpoint, opened one at a time.

    Attributes:
        checkpoint: where they come from.
        config: the transformers configuration of the whole model.
        layout: its indexers.
        features: projections of one indexer call, of this family.
        on_open: called whenever a layer is read.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
        from transformers import AutoConfig

        self.checkpoint, self._dtype, self._device = checkpoint, dtype, device
        self.on_open: Callable[[], None] = lambda: None
        self.config: PretrainedConfig = AutoConfig.from_pretrained(checkpoint.directory)
        text = self.config.get_text_config()
        try:
            family = family_of(text.model_type)
        except UnsupportedModelError as error:
            raise DistillError(str(error)) from None
        self.layout: Layout = layout(text.to_dict())
        everywhere = self.layout.layer_ids == tuple(range(self.layout.num_layers))
        residual_streams = getattr(text, "hc_mult", 1) or 1
        if family.adapter is None or family.sentinel or not everywhere or residual_streams > 1:
            raise DistillError(
                f"{text.model_type}: cannot be run layer by layer here (hyper-connections or layers"
                " without an indexer); load the whole model with `distill train`"
            )
        self.features: Features = features_of(family)
        model_class = _model_class(self.config)
        self._in_fp32_strict = {*(model_class._keep_in_fp32_modules_strict or ())}
        self._in_fp32 = {*(model_class._keep_in_fp32_modules or ())} | self._in_fp32_strict
        self._names: dict[int, dict[str, str]] = {}
        for name in checkpoint.entries:
            match = _LAYER.match(name)
            if match and not checkpoint.is_scale(name):
                self._names.setdefault(int(match[1]), {})[match[2]] = name
        missing = [i for i in range(self.layout.num_layers) if i not in self._names]
        if missing:
            raise DistillError(f"{checkpoint.directory}: no tensors of layer {missing[0]}")

    def __len__(self) -> int:
        return self.layout.num_layers

    def open(self, layer: int) -> Layer:
        """A decoder layer, in memory and frozen."""
        config = cut(self.config, layer)
        state = {
            f"model.layers.0.{rest}": self._tensor(name)
            for rest, name in self._names[layer].items()
        }
        shared = not self.layout.native.computes[layer]
        model = _built(config, state, self._dtype, without_indexer=shared)
        state.clear()
        decoder = model.get_decoder()
        decoder.norm = nn.Identity()
        self.on_open()
        return Layer(layer, model.to(self._device).eval().requires_grad_(False))

    def embed(self) -> Callable[[Tensor], Tensor]:
        """The token embedding."""
        weight = self._outside("embed_tokens.weight")
        return lambda ids: torch.nn.functional.embedding(ids, weight)

    def norm_and_head(self, model: CausalLM) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        """What follows the last layer: the final norm, and the head that makes logits.

        Args:
            model: the whole model on the meta device, for the kind of norm.
        """
        norm = cast(nn.Module, copy.deepcopy(model.get_decoder().norm)).to_empty(
            device=self._device
        )
        norm.load_state_dict({"weight": self._outside("norm.weight")})
        tied = getattr(self.config.get_text_config(), "tie_word_embeddings", False)
        weight = self._outside("embed_tokens.weight" if tied else "lm_head.weight")
        norm = norm.to(self._dtype).eval().requires_grad_(False)
        return norm, lambda hidden: nn.functional.linear(hidden, weight)

    def _outside(self, wanted: str) -> Tensor:
        """A tensor that belongs to no layer; an MTP layer may have its own of that name."""
        for name in self.checkpoint.entries:
            match = _OUTSIDE.match(name)
            if match and match[1] == wanted:
                tensor = self.checkpoint.plain(name, self._dtype)
                require_finite(tensor, name)
                return tensor.to(self._device)
        raise DistillError(f"{self.checkpoint.directory}: no tensor {wanted}")

    def indexer(self, layer: int, model: CausalLM) -> nn.Module:
        """A layer's own indexer, as in `open`; nothing else is read.

        Args:
            layer: its id.
            model: the whole model on the meta device.
        """
        indexer = copy.deepcopy(indexer_at(indexer_sites(model), layer))
        state = {
            name: tensor.to(self._loaded_as(f".indexer.{name}"))
            for name, tensor in self.indexer_state(layer).items()
        }
        try:
            indexer.load_state_dict(state, assign=True)
        except RuntimeError as error:
            raise DistillError(f"layer {layer}: its indexer does not load: {error}") from None
        return indexer.to(self._device).eval().requires_grad_(False)

    def rope(self, length: int, model: CausalLM) -> tuple[Tensor, Tensor]:
        """(cos, sin) [1, length, rope_dim] of positions from 0, as the model makes them.

        Args:
            length: how many.
            model: the whole model on the meta device, for the kind of embedding.
        """
        kind = type(cast(nn.Module, model.get_decoder().rotary_emb))
        rotary = kind(config=self.config.get_text_config()).to(self._device)
        positions = torch.arange(length, device=self._device)[None]
        like = torch.empty(0, dtype=self._dtype, device=self._device)
        return cast(tuple[Tensor, Tensor], rotary(like, position_ids=positions))

    def _loaded_as(self, name: str) -> torch.dtype:
        """Precision in which transformers loads a parameter."""
        lax = self._in_fp32 if self._dtype == torch.float16 else self._in_fp32_strict
        return torch.float32 if any(part in name for part in lax) else self._dtype

    def indexer_state(self, layer: int) -> State:
        """Tensors of a layer's own indexer; nothing else is read."""
        return {
            rest.partition(".indexer.")[2]: self._tensor(name)
            for rest, name in self._names[layer].items()
            if ".indexer." in rest
        }

    def _tensor(self, name: str) -> Tensor:
        """In the layers' precision; what transformers keeps in fp32 (routers) as it is stored.

        Raises:
            NonFiniteError: it is NaN or infinite; names the tensor.
        """
        quantised = self.checkpoint.scale_of(name) is not None
        in_fp32 = not quantised and any(part in name for part in self._in_fp32)
        tensor = self.checkpoint.plain(name, None if in_fp32 else self._dtype)
        require_finite(tensor, name)
        return tensor


class Layer:
    """One decoder layer.

    Attributes:
        number: its id.
        sites: the indexer of the one-layer model.
    """

    def __init__(self, number: int, model: CausalLM) -> None:
        self.number, self._model = number, model
        self.sites: IndexerSites = indexer_sites(model)

    @property
    def indexer(self) -> nn.Module:
        """Its own indexer."""
        return indexer_at(self.sites, 0)

    @torch.no_grad()
    def run(self, hidden: Tensor, answer: Callable[[IndexerCall], Tensor]) -> Tensor:
        """Hidden states [B, S, hidden] after the layer; `answer` gives its selection."""
        indexer = self.indexer

        def forward(*args: object, **kwargs: object) -> Tensor:
            return answer(read_call(self.sites.family, indexer, 0, args, kwargs)).clamp(min=0)

        gathering: AbstractContextManager[None] = nullcontext()
        if self.sites.family.sparse:
            gathering = selected_keys_gathered(self._model, self.sites, linear_masks=True)
        with gathering, override_forward(indexer, forward):
            result = self._model.get_decoder()(inputs_embeds=hidden, use_cache=False)
        return cast(Tensor, result.last_hidden_state)


def cut(config: PretrainedConfig, layer: int) -> PretrainedConfig:
    """The configuration of a model that has this one layer only."""
    result = copy.deepcopy(config)
    text = result.get_text_config()
    count = text.num_hidden_layers
    for name, value in list(vars(text).items()):
        if isinstance(value, list | tuple) and len(value) == count and count > 1:
            setattr(text, name, [value[layer]])
    if getattr(text, "indexer_types", None):
        text.indexer_types = ["full"]  # a layer that ships none is given its selections
    text.num_hidden_layers = 1
    text.vocab_size, text.pad_token_id = _VOCABULARY, 0
    text.bos_token_id = text.eos_token_id = 1
    if hasattr(result, "quantization_config"):
        del result.quantization_config
    return result


def _model_class(config: PretrainedConfig) -> type[PreTrainedModel]:
    """The causal language model of a configuration."""
    from transformers import AutoModelForCausalLM

    try:
        model_class: type[PreTrainedModel] = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        raise DistillError(
            f"{config.model_type}: transformers has no causal language model of this type"
        ) from None
    return model_class


def _built(
    config: PretrainedConfig, state: State, dtype: torch.dtype, *, without_indexer: bool
) -> CausalLM:
    """transformers' own loading, from tensors in memory."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # embeddings and head are missing on purpose
    logging.disable_progress_bar()
    try:
        model, report = _model_class(config).from_pretrained(
            None, config=config, state_dict=state, dtype=dtype, output_loading_info=True
        )
    finally:
        logging.set_verbosity(before)
        if bar:
            logging.enable_progress_bar()
    outside = ["embed_tokens", "lm_head", "model.norm"] + [".indexer."] * without_indexer
    missing = [n for n in report["missing_keys"] if not any(part in n for part in outside)]
    if missing or report["unexpected_keys"]:
        raise DistillError(
            f"a layer does not load: missing {sorted(missing)[:3]},"
            f" unexpected {sorted(report['unexpected_keys'])[:3]}"
        )
    return cast(CausalLM, model)
