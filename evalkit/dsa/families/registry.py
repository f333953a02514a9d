"""One adapter per model family: where the indexer sits, how its call is read, how it scores.

The seam is the sub-module named ``indexer`` that every family calls to get top-k indices. Arguments
are bound by *position in the installed signature*, never by keyword name, because those are being
renamed between releases. Facts per family: docs/families.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall, Rotation, rotated, rows_of
from evalkit.dsa.families import deepseek_v4
from evalkit.dsa.features import (
    IndexFeatures,
    rotate_half_split,
    rotate_interleaved,
    rotate_pairs,
)
from evalkit.dsa.layout import Layout, layout
from evalkit.dsa.schedule import ScheduleError


class Features(Protocol):
    """Projections of one indexer call."""

    def __call__(
        self, indexer: Any, call: IndexerCall, rows: Tensor | None = None, /
    ) -> IndexFeatures:
        """All keys; queries and head weights of all rows, or of `rows` [R] or [B, R]."""
        ...


class UnsupportedModelError(ValueError):
    """The model has no indexer that a schedule can act on; the message says why."""


@dataclass(frozen=True, slots=True)
class Family:
    """How to work with the indexers of one model family.

    Attributes:
        order: our names for the positional parameters of the indexer's `forward`.
        features: projections of a call, queries and head weights at some rows only where the third
            argument names them; None where `index_scores` is not offered.
        advance: state that a shared layer must still update (DeepSeek-V4's compressor), or None.
        padding: whether rows of one batch may be padded (compressor windows forbid it).
        sentinel: whether attention takes -1 for "nothing here".
        note: why `features` is missing.
    """

    order: tuple[str, ...]
    features: Features | None
    advance: Callable[[nn.Module, IndexerCall], None] | None = None
    padding: bool = True
    sentinel: bool = False
    note: str = ""


def bind(family: Family, indexer: nn.Module | None, layer_id: int, args: Any, kwargs: Any) -> Any:
    """The call under our names; `indexer` None (a layer without one) binds by position only."""
    values: dict[str, Any] = dict(zip(family.order, args, strict=False))
    if kwargs:
        names = _parameter_names(indexer) if indexer is not None else family.order
        ours = dict(zip(names, family.order, strict=False))
        for key, value in kwargs.items():
            # A layer without indexer has no signature to ask; `cache` is the only renamed one.
            values[ours.get(key, "cache" if "past" in key else key)] = value
    return IndexerCall(
        hidden=values["hidden_states"],
        q_resid=values.get("q_resid"),
        rope=values.get("position_embeddings"),
        mask=values.get("attention_mask"),
        position_ids=values.get("position_ids"),
        cache=values.get("cache"),
        layer_id=layer_id,
    )


def _parameter_names(indexer: nn.Module) -> list[str]:
    signature = inspect.signature(type(indexer).forward)
    return [name for name in signature.parameters if name != "self"]


# -- MLA families: keys of single tokens ---------------------------------------------------------


def _mla_features(rotate: Rotation, rope_slice: Literal["first", "last"]) -> Features:
    """Features of the DeepSeek-V3.2 indexer and its descendants.

    I[t,s] = Σ_h w[t,h] · ReLU(q[t,h]·k[s] · d^-1/2),  w = weights_proj(x) · H^-1/2
    (DeepSeek-V3.2 report, eq. 1; scale placement as in the installed library).
    """

    def features(indexer: Any, call: IndexerCall, rows: Tensor | None = None) -> IndexFeatures:
        x, dim, seq = call.hidden, indexer.head_dim, call.hidden.shape[1]
        at = rows_of(call, rows)
        if at.q_resid is None:
            query = indexer.wq_b(indexer.q_input_norm(at.hidden)).unflatten(-1, (-1, dim))
            query = indexer.softmax_scaling(query, at.position_ids, head_dim_first=False)
        else:
            query = indexer.wq_b(at.q_resid).unflatten(-1, (-1, dim))
        norm = indexer.k_norm
        key = norm(indexer.wk(x).to(norm.weight.dtype)).to(x.dtype).unsqueeze(2)
        if getattr(indexer, "use_rope", True):
            if call.rope is None or at.rope is None:
                raise ValueError("this family needs position embeddings")
            width = indexer.qk_rope_head_dim
            query = rotated(query, at.rope, width, rope_slice, rotate)
            key = rotated(key, call.rope, width, rope_slice, rotate)
        projection = indexer.weights_proj
        weight = projection(at.hidden.to(projection.weight.dtype)).float() * indexer.n_heads**-0.5
        key = key.squeeze(2)
        if call.cache is not None:
            key = call.cache.update_indexer(key, call.layer_id)
        positions = torch.arange(key.shape[1] - seq, key.shape[1], device=x.device)
        return IndexFeatures(
            query=query.float(),
            key=key.float(),
            weight=weight,
            scale=indexer.softmax_scale,
            positions=positions if rows is None else positions[rows],
            key_valid=_valid_keys(call.mask),
        )

    return features


def _valid_keys(mask: Tensor | None) -> Tensor | None:
    """[B, T], False at padding: the last row of a causal mask sees every key that is one."""
    if mask is None:
        return None
    last = mask[:, -1]
    valid = last if last.dtype == torch.bool else last >= 0
    return None if bool(valid.all()) else valid


# -- the registry --------------------------------------------------------------------------------

_MLA = (
    "hidden_states",
    "q_resid",
    "position_embeddings",
    "attention_mask",
    "position_ids",
    "cache",
)
_HALF_FIRST = Family(_MLA, _mla_features(rotate_half_split, "first"))
_INTERLEAVED_FIRST = Family(_MLA, _mla_features(rotate_interleaved, "first"))

FAMILIES: Mapping[str, Family] = {
    "deepseek_v32": _HALF_FIRST,
    "axk2": _HALF_FIRST,
    "glm_moe_dsa": _INTERLEAVED_FIRST,
    "dots3_note_text": _INTERLEAVED_FIRST,
    "hy_v4": Family(_MLA, _mla_features(rotate_half_split, "last")),
    "hy_v4_vl_text": Family(_MLA, _mla_features(rotate_pairs, "last")),
    "mistral_large4_text": Family(
        ("hidden_states", "position_embeddings", "attention_mask", "position_ids", "cache"),
        _mla_features(rotate_interleaved, "first"),
    ),
    "glm5_next_text": Family(
        ("hidden_states", "q_resid", "attention_mask", "cache"),
        None,
        note="glm5_next scores pools of tokens and always adds a tail",
    ),
    "deepseek_v4": Family(
        ("hidden_states", "q_resid", "position_ids", "cache", "layer_idx"),
        deepseek_v4.features,
        deepseek_v4.advance,
        padding=False,
        sentinel=True,
    ),
}

# Models whose attention has a module called `indexer` that is not a lightning indexer.
_REFUSED = {
    "qwen4_exp_text": "its QSA indexer returns a token mask over mean-pooled blocks, not top-k"
    " positions of a lightning indexer",
    "minimax_m3_vl_text": "its indexer selects blocks per key-value head, not positions",
}


@dataclass(frozen=True, slots=True)
class Seam:
    """The places of one live model where a schedule acts.

    Attributes:
        family: the adapter.
        layout: layer ids and native schedule.
        owners: per ordinal, the module whose `indexer` attribute is the seam.
        root: the module whose forward is one pass over all owners.
    """

    family: Family
    layout: Layout
    owners: tuple[nn.Module, ...]
    root: nn.Module


def family_of(model_type: str) -> Family:
    """The adapter of a (text) model type.

    Raises:
        UnsupportedModelError: no adapter; the reason is given where one is known.
    """
    if model_type in _REFUSED:
        raise UnsupportedModelError(f"{model_type} is not supported: {_REFUSED[model_type]}")
    if model_type not in FAMILIES:
        raise UnsupportedModelError(
            f"{model_type} is not supported: it has no lightning indexer known here"
            f" (supported: {', '.join(sorted(FAMILIES))})"
        )
    return FAMILIES[model_type]


def index_features(
    model: nn.Module, indexer: nn.Module, call: IndexerCall, rows: Tensor | None = None
) -> IndexFeatures:
    """Queries, keys and head weights of one indexer call (see `apply_schedule(observe=…)`).

    The call must be of a whole sequence from position 0: its cache is not read. With `rows`, [R]
    for all sequences alike or [B, R], queries and head weights are made of those rows only.

    Raises:
        UnsupportedModelError: the family's scores are not offered; the message says why.
    """
    config: Any = model.config
    family = family_of(config.get_text_config().model_type)
    if family.features is None:
        raise UnsupportedModelError(f"no index scores: {family.note}")
    return family.features(indexer, replace(call, cache=None), rows)


def seam(model: nn.Module) -> Seam:
    """Find the indexers of a live transformers model.

    Raises:
        UnsupportedModelError: the model's family is not supported, or its modules do not match
            its configuration.
    """
    config: Any = getattr(model, "config", None)
    if config is None:
        raise UnsupportedModelError(f"{type(model).__name__} has no configuration")
    text = config.get_text_config()
    family = family_of(text.model_type)
    try:
        where = layout(text.to_dict())
    except ScheduleError as error:
        raise UnsupportedModelError(str(error)) from None
    found: dict[int, tuple[str, nn.Module]] = {}
    for name, module in model.named_modules():
        if hasattr(module, "indexer"):
            parts = name.split(".")
            layer = next((int(p) for p in reversed(parts) if p.isdigit()), -1)
            found[layer] = (name, module)
    missing = [i for i in where.layer_ids if i not in found]
    if missing:
        raise UnsupportedModelError(f"{text.model_type}: layer {missing[0]} has no indexer seam")
    names = [found[i][0] for i in where.layer_ids]
    return Seam(family, where, tuple(found[i][1] for i in where.layer_ids), _root(model, names))


def _root(model: nn.Module, names: list[str]) -> nn.Module:
    """The innermost module that contains every owner and has a forward of its own."""
    path = names[0].split(".")
    while path and not all(name.startswith(".".join(path) + ".") for name in names):
        path.pop()
    module = model.get_submodule(".".join(path)) if path else model
    while isinstance(module, nn.ModuleList):
        path.pop()
        module = model.get_submodule(".".join(path)) if path else model
    return module
