"""Overlap of two selections (Jaccard, recall, mass), in chunks of query rows.

A selection is int [B, R, k] of key positions, -1 where a row had fewer. With A what a layer is
given and B what it would have selected itself:

    Jaccard = |A ∩ B| / |A ∪ B|,   recall = |A ∩ B| / |B|,   mass recall = Σ_{s∈A} p[s]

Published numbers use different ones: MLI (arXiv 2611.03768) Jaccard, IndexCache (arXiv 2603.12201)
|A ∩ B| / k. For two sets of k keys, recall = 2J / (1 + J).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from evalkit.dsa.apply import apply_schedule
from evalkit.dsa.call import IndexerCall
from evalkit.dsa.families.sites import indexer_sites, topk_of
from evalkit.dsa.schedule import Phase, ReuseSchedule
from evalkit.dsa.scores import select

CHUNK_ELEMENTS = 2**24  # of one bool [B, rows, T] block


def common(
    given: Tensor, wanted: Tensor, keys: int, *, chunk_elements: int = CHUNK_ELEMENTS
) -> Tensor:
    """|A ∩ B| per row: int64 [B, R] of two selections [B, R, k] over `keys` positions."""
    step = max(1, chunk_elements // (given.shape[0] * keys))
    parts = []
    for a, b in zip(torch.split(given, step, 1), torch.split(wanted, step, 1), strict=True):
        member = membership(a, keys)
        parts.append((member.gather(-1, b.long().clamp(min=0)) & (b >= 0)).sum(-1))
    return torch.cat(parts, dim=1)


def size(selection: Tensor) -> Tensor:
    """Keys per row: int64 [B, R]."""
    return (selection >= 0).sum(-1)


def jaccard(given: Tensor, wanted: Tensor, keys: int) -> Tensor:
    """|A ∩ B| / |A ∪ B| per row: fp32 [B, R]; 1 where both are empty."""
    both = common(given, wanted, keys)
    union = size(given) + size(wanted) - both
    return torch.where(union > 0, both / union.clamp(min=1), 1.0)


def recall(given: Tensor, wanted: Tensor, keys: int) -> Tensor:
    """|A ∩ B| / |B| per row: fp32 [B, R]; 1 where B is empty."""
    count = size(wanted)
    return torch.where(count > 0, common(given, wanted, keys) / count.clamp(min=1), 1.0)


def mass_recall(given: Tensor, probability: Tensor) -> Tensor:
    """Share of a distribution [B, R, T] on the given keys [B, R, k]: [B, R]."""
    taken = probability.gather(-1, given.long().clamp(min=0))
    return taken.masked_fill(given < 0, 0.0).sum(-1)


def membership(selection: Tensor, keys: int) -> Tensor:
    """Whether a key is in a selection [B, R, k]: bool [B, R, keys]."""
    member = torch.zeros(*selection.shape[:-1], keys + 1, dtype=torch.bool, device=selection.device)
    member.scatter_(-1, selection.long().masked_fill(selection < 0, keys), True)
    return member[..., :keys]


# -- of a model ----------------------------------------------------------------------------------


@torch.no_grad()
def own_selections(
    model: nn.Module, ids: Tensor, rows: Tensor, schedule: ReuseSchedule | None = None
) -> dict[int, Tensor]:
    """What every layer with an indexer would select by itself, at some rows: ordinal to [B, R, k].

    Args:
        model: a transformers model whose family has index scores.
        ids: token ids [B, S], whole sequences.
        rows: row numbers [R] or [B, R].
        schedule: what the forward runs under; default: the checkpoint's own schedule.

    Raises:
        UnsupportedModelError: the family's scores are not offered.
    """
    sites = indexer_sites(model)
    features, native = sites.features, sites.layout.native
    selections: dict[int, Tensor] = {}

    def observe(ordinal: int, call: IndexerCall, _: Tensor | None) -> None:
        indexer = sites.indexer(ordinal)
        if native.computes[ordinal] and indexer is not None:
            at_rows = features(indexer, replace(call, cache=None), rows)
            selections[ordinal] = select(at_rows, topk_of(indexer))

    with apply_schedule(model, schedule or native, chunked=True, observe=observe):
        model(ids, use_cache=False)
    return selections


def overlap_matrix(selections: Mapping[int, Tensor], keys: int) -> tuple[Tensor, Tensor]:
    """Mean Jaccard and mean recall of every pair of layers: two fp32 [n, n], in rising order.

    Entry [i, j] of the recall says how much of what layer j selects layer i would give it.
    """
    layers = sorted(selections)
    matrices = torch.ones(2, len(layers), len(layers))
    for i, giver in enumerate(layers):
        for j, reader in enumerate(layers):
            if i != j:
                a, b = selections[giver], selections[reader]
                matrices[0, i, j] = jaccard(a, b, keys).mean()
                matrices[1, i, j] = recall(a, b, keys).mean()
    return matrices[0], matrices[1]


def selection_recall(
    selections: Mapping[int, Tensor], schedule: ReuseSchedule, keys: int, phase: Phase = "decode"
) -> dict[int, float]:
    """Per reading layer, how much of what it would select its source supplies.

    Layers without an indexer of their own are left out: nobody knows what they would select.
    """
    sources: Sequence[int] = schedule.sources(phase)
    return {
        layer: float(recall(selections[sources[layer]], wanted, keys).mean())
        for layer, wanted in selections.items()
        if sources[layer] in selections
    }
