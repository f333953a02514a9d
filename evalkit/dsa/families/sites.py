"""The indexers of a live model: which modules own them, and their features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, cast

from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall
from evalkit.dsa.families import deepseek_v4, mla
from evalkit.dsa.families.adapter import Adapter, Features
from evalkit.dsa.families.base import Family, UnsupportedModelError
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.features import IndexFeatures
from evalkit.dsa.layout import Layout, layout
from evalkit.dsa.transformers_model import text_config_of

ADAPTERS: dict[str, Callable[[Family], Adapter]] = {
    "mla": mla.adapter,
    "deepseek_v4": deepseek_v4.adapter,
}


@dataclass(frozen=True, slots=True)
class IndexerSites:
    """The indexers of one live model, where a schedule acts.

    Attributes:
        family: its record.
        layout: layer ids and native schedule.
        owners: per ordinal, the module whose `indexer` attribute is called.
        root: the module whose forward is one pass over all owners.
    """

    family: Family
    layout: Layout
    owners: tuple[nn.Module, ...]
    root: nn.Module

    def indexer(self, ordinal: int) -> nn.Module | None:
        """The indexer of a layer; None where the checkpoint ships none (a native shared layer)."""
        return cast("nn.Module | None", self.owners[ordinal].indexer)

    @property
    def features(self) -> Features:
        """Projections of an indexer call; see `features_of`."""
        return features_of(self.family)


class _Selecting(Protocol):
    index_topk: int


def topk_of(indexer: nn.Module) -> int:
    """How many keys an indexer selects."""
    return cast(_Selecting, indexer).index_topk


def set_topk(indexer: nn.Module, topk: int) -> None:
    """Let an indexer select another number of keys."""
    cast(_Selecting, indexer).index_topk = topk


@cache
def adapter_of(family: Family) -> Adapter | None:
    """The code of a family; None where its index scores are not offered."""
    return None if family.adapter is None else ADAPTERS[family.adapter](family)


def features_of(family: Family) -> Features:
    """Projections of an indexer call.

    Raises:
        UnsupportedModelError: the family's scores are not offered; the message says why.
    """
    adapter = adapter_of(family)
    if adapter is None:
        raise UnsupportedModelError(f"no index scores: {family.no_features}")
    return adapter.features


def index_features(
    model: nn.Module, indexer: nn.Module, call: IndexerCall, rows: Tensor | None = None
) -> IndexFeatures:
    """Queries, keys and head weights of one indexer call (see `apply_schedule(observe=…)`).

    The call must be of a whole sequence from position 0: its cache is not read. With `rows`, [R]
    for all sequences alike or [B, R], queries and head weights are made of those rows only.

    Raises:
        UnsupportedModelError: the family's scores are not offered; the message says why.
    """
    features = features_of(family_of(text_config_of(model).model_type))
    return features(indexer, replace(call, cache=None), rows)


def indexer_sites(model: nn.Module) -> IndexerSites:
    """Find the indexers of a live transformers model.

    Raises:
        UnsupportedModelError: the model's family is not supported, or its modules do not match
            its configuration.
        ScheduleError: the configuration contradicts itself.
    """
    places = layout(text_config_of(model).to_dict())
    owners: dict[int, tuple[str, nn.Module]] = {}
    for name, module in model.named_modules():
        if hasattr(module, "indexer"):
            layer = next((int(p) for p in reversed(name.split(".")) if p.isdecimal()), -1)
            owners[layer] = (name, module)
    missing = [i for i in places.layer_ids if i not in owners]
    if missing:
        raise UnsupportedModelError(
            f"{places.model_type}: layer {missing[0]} has no module with an indexer"
        )
    family = family_of(places.model_type)
    if not family.parameters:
        raise UnsupportedModelError(
            f"{places.model_type}: schedules of this model are for servers, it is not run here"
        )
    return IndexerSites(
        family,
        places,
        tuple(owners[i][1] for i in places.layer_ids),
        _root(model, [owners[i][0] for i in places.layer_ids]),
    )


def _root(model: nn.Module, names: Sequence[str]) -> nn.Module:
    """The innermost module that contains every owner and has a forward of its own."""
    path = names[0].split(".")
    while path and not all(name.startswith(".".join(path) + ".") for name in names):
        path.pop()
    module = model.get_submodule(".".join(path)) if path else model
    while isinstance(module, nn.ModuleList):
        path.pop()
        module = model.get_submodule(".".join(path)) if path else model
    return module
