"""What an adapter of a model family is, and how an indexer call is read by position."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall
from evalkit.dsa.features import (
    IndexFeatures,
)


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
