"""The indexers of a live model: which modules own them, and their features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall
from evalkit.dsa.families.base import Family, UnsupportedModelError
from evalkit.dsa.families.registry import family_of
from evalkit.dsa.features import (
    IndexFeatures,
)
from evalkit.dsa.layout import Layout, layout
from evalkit.dsa.schedule import ScheduleError


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
