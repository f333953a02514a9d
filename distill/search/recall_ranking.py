"""First-order proposal: what readers would lose if a layer were shared, from one forward.

R[i, j] is the recall of layer j's own selection in layer i's own selection, in the original model:
|T_i ∩ T_j| / |T_j|, mean over rows that have something to choose. A change of schedule is predicted
to cost Σ_ℓ R[σ(ℓ), ℓ] − R[σ'(ℓ), ℓ]: the readers' loss of recall. It knows nothing of what a lost
position is worth, so it orders candidates and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.models.forward import run
from evalkit.dsa import IndexerCall, ReuseSchedule, index_features, select
from evalkit.dsa.families.sites import indexer_sites


@torch.no_grad()
def recalls(model: Any, batches: Sequence[Batch], every: int = 4) -> Tensor:
    """R [layers, layers] over every `every`-th row; a layer without indexer speaks by its source.

    Selections exist as bit masks of one batch at a time: [layers, rows, T] bool.
    """
    count = len(indexer_sites(model).owners)
    total, rows_seen = torch.zeros(count, count, dtype=torch.float64), 0.0
    for batch in batches:
        masks, first = _masks(model, batch, every)
        weight = batch.valid[:, first::every].float()
        for j, wanted in enumerate(masks):
            size = wanted.sum(-1).clamp(min=1)
            for i, given in enumerate(masks):
                share = (given & wanted).sum(-1) / size
                total[i, j] += float((share * weight).sum())
        rows_seen += float(weight.sum())
    return total / max(rows_seen, 1.0)


def _masks(model: Any, batch: Batch, every: int) -> tuple[list[Tensor], int]:
    """Selected keys per layer, bool [B, rows, T], and the first row with something to choose."""
    where = indexer_sites(model)
    native, found = where.layout.native, dict[int, Tensor]()
    some: Any = where.owners[0].indexer
    first = int(some.index_topk) * int(getattr(some, "compress_rate", 1))

    def visit(ordinal: int, call: IndexerCall) -> None:
        own: Any = where.owners[ordinal].indexer
        rows = torch.arange(first, call.hidden.shape[1], every, device=call.hidden.device)
        features = index_features(model, own, call, rows)
        chosen = select(features, own.index_topk)
        keys = features.key.shape[1]  # one more than there are takes what is not selected
        seen = torch.zeros(*chosen.shape[:2], keys + 1, dtype=torch.bool, device=chosen.device)
        found[ordinal] = seen.scatter_(2, chosen.masked_fill(chosen < 0, keys), 1)[..., :keys]

    run(model, native, batch, visit, layers=native.full_layers)
    return [found[native.source[i]] for i in range(len(where.owners))], first


def predicted_cost(recall: Tensor, before: ReuseSchedule, after: ReuseSchedule) -> float:
    """Recall that readers lose, over both phases where they differ."""
    lost = 0.0
    for phase in ("prefill", "decode"):
        old, new = before.sources(phase), after.sources(phase)
        pairs = enumerate(zip(old, new, strict=True))
        lost += sum(float(recall[a, i] - recall[b, i]) for i, (a, b) in pairs)
    return lost / 2
