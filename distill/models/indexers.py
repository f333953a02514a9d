"""Indexers of a live model by ordinal, and what is read off them."""

from __future__ import annotations

from typing import cast

from torch import nn

from evalkit.dsa import ScheduleError
from evalkit.dsa.families.sites import IndexerSites, topk_of


def indexer_at(sites: IndexerSites, ordinal: int) -> nn.Module:
    """The indexer of a layer.

    Raises:
        ScheduleError: the checkpoint has none there.
    """
    indexer = sites.indexer(ordinal)
    if indexer is None:
        raise ScheduleError(f"layer {sites.layout.layer_ids[ordinal]} has no indexer")
    return indexer


def scale_of(indexer: nn.Module) -> float:
    """What an indexer multiplies its products by (`evalkit.dsa.IndexFeatures.scale`)."""
    return float(cast(float, getattr(indexer, "softmax_scale", 1.0)))


def first_sparse_position(sites: IndexerSites) -> int:
    """First query position that may see more keys than it can select."""
    return topk_of(indexer_at(sites, 0)) * sites.layout.ratio
