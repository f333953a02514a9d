"""Candidate ranking by recall: what readers would lose if a layer were shared, from one forward.

R[i, j] is the recall of layer j's own selection in layer i's own selection, in the original model:
|T_i ∩ T_j| / |T_j|, mean over positions with a choice. Under a policy T_i is what i selects by it,
T_j what j would as it was trained. A change of schedule is predicted to cost
Σ_ℓ R[σ(ℓ), ℓ] − R[σ'(ℓ), ℓ]: the readers' loss of recall. It knows nothing of what a lost position
is worth, so it orders candidates and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.errors import at
from distill.models.causal_lm import CausalLM
from distill.models.forward import visit_indexer_calls
from distill.models.indexers import first_sparse_position, indexer_at
from distill.objective.query_sampling import PHASES
from distill.objective.teachers import require_finite_features
from evalkit.dsa import IndexerCall, ReuseSchedule, index_features, select
from evalkit.dsa.families.sites import indexer_sites, topk_of
from evalkit.dsa.overlap import membership
from evalkit.dsa.selection import SelectionPolicy


@torch.no_grad()
def recalls(
    model: CausalLM,
    batches: Sequence[Batch],
    every: int = 4,
    policy: SelectionPolicy | None = None,
) -> Tensor:
    """R [layers, layers] over every `every`-th position; a layer without indexer has its source's.

    Selections exist as bit masks of one batch at a time: [layers, positions, T] bool, twice.
    """
    count = len(indexer_sites(model).owners)
    total, positions = torch.zeros(count, count, dtype=torch.float64), 0.0
    for batch in batches:
        given, masks, first = _masks(model, batch, every, policy)
        weight = batch.valid[:, first::every].float()
        for j, wanted in enumerate(masks):
            size = wanted.sum(-1).clamp(min=1)
            for i, selected in enumerate(given):
                share = (selected & wanted).sum(-1) / size
                total[i, j] += float((share * weight).sum())
        positions += float(weight.sum())
    return total / max(positions, 1.0)


def _masks(
    model: CausalLM, batch: Batch, every: int, policy: SelectionPolicy | None
) -> tuple[list[Tensor], list[Tensor], int]:
    """Keys per layer by the policy and as trained, bool [B, positions, T]; first position."""
    sites = indexer_sites(model)
    native, given, masks = sites.layout.native, dict[int, Tensor](), dict[int, Tensor]()
    first = first_sparse_position(sites)

    def visit(ordinal: int, call: IndexerCall) -> None:
        indexer = indexer_at(sites, ordinal)
        positions = torch.arange(first, call.hidden.shape[1], every, device=call.hidden.device)
        features = index_features(model, indexer, call, positions)
        with at(f"layer {sites.layout.layer_ids[ordinal]}"):
            require_finite_features(features)
        topk, keys = topk_of(indexer), features.key.shape[1]
        masks[ordinal] = given[ordinal] = membership(select(features, topk), keys)
        if policy is not None:
            given[ordinal] = membership(select(features, topk, policy=policy), keys)

    visit_indexer_calls(model, native, batch, visit, layers=native.full_layers)
    sources = [native.source[i] for i in range(len(sites.owners))]
    return [given[i] for i in sources], [masks[i] for i in sources], first


def predicted_cost(recall: Tensor, before: ReuseSchedule, after: ReuseSchedule) -> float:
    """Recall that readers lose, over both phases where they differ."""
    lost = 0.0
    for phase in PHASES:
        old, new = before.sources(phase), after.sources(phase)
        pairs = enumerate(zip(old, new, strict=True))
        lost += sum(float(recall[a, i] - recall[b, i]) for i, (a, b) in pairs)
    return lost / 2
