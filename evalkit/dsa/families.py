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

from evalkit.dsa.features import (
    IndexFeatures,
    rotate_half_split,
    rotate_interleaved,
    rotate_pairs,
    take_rows,
)
from evalkit.dsa.layout import Layout, layout
from evalkit.dsa.schedule import ScheduleError

Rotation = Callable[[Tensor, Tensor, Tensor], Tensor]


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
class IndexerCall:
    """The arguments of one indexer call, under our names.

    Attributes:
        hidden: attention-block input, after the input norm [B, S, hidden].
        q_resid: normalised MLA query latent [B, S, q_lora_rank]; None where queries come from
            `hidden`.
        rope: (cos, sin) of the queries [B or 1, S, rope_dim]; None where the indexer makes its own.
        mask: causal and padding mask [B, S, T], bool or additive; None where none is passed.
        position_ids: [B or 1, S]; None where the family does not pass them.
        cache: the model's cache, or None.
        layer_id: absolute layer id.
    """

    hidden: Tensor
    q_resid: Tensor | None
    rope: tuple[Tensor, Tensor] | None
    mask: Tensor | None
    position_ids: Tensor | None
    cache: Any
    layer_id: int


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
        at = _rows_of(call, rows)
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
            query = _rotated(query, at.rope, width, rope_slice, rotate)
            key = _rotated(key, call.rope, width, rope_slice, rotate)
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


def _rows_of(call: IndexerCall, rows: Tensor | None) -> IndexerCall:
    """What the query side reads of a call: some rows [R] or [B, R] of it; no cache, no mask."""
    if rows is None:
        return call

    def take(part: Tensor) -> Tensor:
        return take_rows(part, rows)

    return replace(
        call,
        hidden=take(call.hidden),
        q_resid=None if call.q_resid is None else take(call.q_resid),
        rope=None if call.rope is None else (take(call.rope[0]), take(call.rope[1])),
        position_ids=None if call.position_ids is None else take(call.position_ids),
        mask=None,
        cache=None,
    )


def _rotated(
    x: Tensor,
    rope: tuple[Tensor, Tensor],
    width: int,
    rope_slice: str,
    rotate: Rotation,
) -> Tensor:
    """Rotate the first or last `width` channels of [B, S, heads, d]."""
    cos, sin = (table.unsqueeze(2) for table in rope)
    if rope_slice == "first":
        return torch.cat([rotate(x[..., :width], cos, sin), x[..., width:]], dim=-1)
    return torch.cat([x[..., :-width], rotate(x[..., -width:], cos, sin)], dim=-1)


def _valid_keys(mask: Tensor | None) -> Tensor | None:
    """[B, T], False at padding: the last row of a causal mask sees every key that is one."""
    if mask is None:
        return None
    last = mask[:, -1]
    valid = last if last.dtype == torch.bool else last >= 0
    return None if bool(valid.all()) else valid


# -- DeepSeek-V4: keys of compressed windows -----------------------------------------------------


def _v4_rotated(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    return _rotated(x, rope, 2 * rope[0].shape[-1], "last", rotate_pairs)


def _v4_compress(indexer: Any, call: IndexerCall) -> Tensor:
    """Compressed index keys [B, T, d] of the sequence so far; updates the cache when there is one.

    Window w pools its own Cb series with the Ca series of window w-1 (DeepSeek-V4 report §2.3.1).
    """
    cache = call.cache.layers[call.layer_id] if call.cache is not None else None
    ratio, dim = indexer.compress_rate, indexer.head_dim
    kv, gate = indexer.kv_proj(call.hidden), indexer.gate_proj(call.hidden)
    if cache is None:
        usable = kv.shape[1] // ratio * ratio
        kv, gate, start = kv[:, :usable], gate[:, :usable], 0
    else:
        kv, gate, start = cache.store_compression_weights("indexer", kv, gate)
    batch, windows = kv.shape[0], kv.shape[1] // ratio
    if windows == 0:
        keys = kv.new_zeros((batch, 0, dim))
        return _v4_remembered(cache, keys)
    kv = kv.view(batch, windows, ratio, 2 * dim)
    gate = gate.view(batch, windows, ratio, 2 * dim) + indexer.position_bias
    first_kv = kv.new_zeros((batch, 1, ratio, dim))
    first_gate = gate.new_full((batch, 1, ratio, dim), float("-inf"))
    if cache is not None:
        prior_kv, prior_gate = cache.update_overlap_state("indexer", kv, gate, dim)
        if prior_kv is not None:
            first_kv, first_gate = prior_kv.unsqueeze(1), prior_gate.unsqueeze(1)
    before_kv = torch.cat([first_kv.to(kv.dtype), kv[:, :-1, :, :dim]], dim=1)
    before_gate = torch.cat([first_gate.to(gate.dtype), gate[:, :-1, :, :dim]], dim=1)
    slots = torch.cat([before_kv, kv[..., dim:]], dim=2)
    share = torch.cat([before_gate, gate[..., dim:]], dim=2)
    share = share.softmax(dim=2, dtype=torch.float32).to(slots.dtype)
    pooled = indexer.kv_norm((slots * share).sum(dim=2))
    at = (torch.arange(windows, device=pooled.device) * ratio + start).unsqueeze(0)
    rope = indexer.rotary_emb(
        pooled, position_ids=at.expand(batch, -1), layer_type=indexer.rope_layer_type
    )
    keys = _v4_rotated(pooled.unsqueeze(2), rope).squeeze(2)
    return _v4_remembered(cache, keys)


def _v4_remembered(cache: Any, keys: Tensor) -> Tensor:
    """All keys so far: the cache appends the fresh ones and returns the whole list."""
    if cache is None:
        return keys
    everything: Tensor = cache.update_compressor_states("indexer", keys)
    return everything


def _v4_features(indexer: Any, call: IndexerCall, rows: Tensor | None = None) -> IndexFeatures:
    """Features of the DeepSeek-V4 indexer: scale after the ReLU, compressed keys."""
    at = _rows_of(call, rows)
    if at.q_resid is None or at.position_ids is None:
        raise ValueError("deepseek_v4 needs the query latent and position ids")
    x, positions = at.hidden, at.position_ids
    rope = indexer.rotary_emb(x, position_ids=positions, layer_type=indexer.rope_layer_type)
    query = indexer.q_b_proj(at.q_resid).unflatten(-1, (-1, indexer.head_dim))
    scorer = indexer.scorer
    return IndexFeatures(
        query=_v4_rotated(query, rope).float(),
        key=_v4_compress(indexer, call).float(),
        weight=scorer.weights_proj(x).float() * scorer.weights_scaling,
        scale=scorer.softmax_scale,
        positions=positions if rows is not None and rows.dim() == 2 else positions[0],
        ratio=indexer.compress_rate,
    )


def _v4_advance(indexer: nn.Module, call: IndexerCall) -> None:
    """A shared C4 layer keeps its indexer's compressor state in step, and nothing else."""
    if call.cache is not None:
        _v4_compress(indexer, call)


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
        _v4_features,
        _v4_advance,
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
