"""One indexer call: its arguments under our names, and what features take from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from torch import Tensor, nn

from evalkit.dsa.families.base import Family
from evalkit.dsa.features import take_rows


class CompressorCache(Protocol):
    """What transformers' cache keeps of a DeepSeek-V4 compressor, by the compressor's name."""

    def store_compression_weights(
        self, name: str, kv: Tensor, gate: Tensor
    ) -> tuple[Tensor, Tensor, int]:
        """Whole windows of buffered and new tokens, and the position of the first of them."""
        ...

    def update_overlap_state(
        self, name: str, kv: Tensor, gate: Tensor, head_dim: int
    ) -> tuple[Tensor | None, Tensor | None]:
        """The last window before these ones; the new last one is kept."""
        ...

    def update_compressor_states(self, name: str, compressed: Tensor) -> Tensor:
        """All compressed keys so far [B, T, d], the new ones included."""
        ...


class IndexerCache(Protocol):
    """The part of transformers' cache that indexers use."""

    layers: Sequence[CompressorCache]

    def update_indexer(self, keys: Tensor, layer_idx: int) -> Tensor:
        """All index keys so far [B, T, d], the new ones included; room behind, if it is static."""
        ...

    def get_seq_length(self, layer_idx: int) -> int | Tensor:
        """How many tokens of a layer's attention are in it."""
        ...

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep some sequences of the batch, in the order of their numbers."""
        ...


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
    cache: IndexerCache | None
    layer_id: int


def rows_of(call: IndexerCall, rows: Tensor | None) -> IndexerCall:
    """The query side of a call at some rows [R] or [B, R], without cache and mask."""
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


def read_call(
    family: Family,
    indexer: nn.Module | None,
    layer_id: int,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> IndexerCall:
    """The arguments of an indexer's forward, bound by position in the installed signature.

    `indexer` is None for a layer without one, whose caller names keywords as the family does.
    """
    values: dict[str, Any] = dict(zip(family.parameters, args, strict=False))
    if kwargs:
        names = family.parameters if indexer is None else _parameter_names(type(indexer).forward)
        ours = dict(zip(names, family.parameters, strict=False))
        for key, value in kwargs.items():
            # Without a signature to ask: `past_key_values` is the only name that was changed.
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


@cache
def _parameter_names(forward: Callable[..., object]) -> tuple[str, ...]:
    return tuple(inspect.signature(forward).parameters)[1:]  # without self
