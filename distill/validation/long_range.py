"""How much each of the original's predictions owes to keys that lie far back.

    G_t = Σ_v p_t(v) · (log p_t(v) − log r_t(v)),   p original, r the same with its latest keys only

In r every indexer selects the latest keys that it may select, as many as otherwise. Where G is
small, any selection does: at most positions of most text, so that a mean over all of them says
little about retrieval. LongPPL (arXiv 2410.23771) contrasts long and short context in the same way,
for the next token's log-probability; here no next token is asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.models.causal_lm import CausalLM
from distill.models.indexers import indexer_at
from distill.validation.logit_kl import Reference
from evalkit.dsa.families.sites import indexer_sites, topk_of


def long_range_gain(model: CausalLM, original: Reference) -> Tensor:
    """G at every valid position of the reference, fp32 [positions], in order."""
    sites = indexer_sites(model)

    def latest(batch: Batch) -> dict[int, Tensor]:
        selections = {}
        positions = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        for ordinal in original.native.full_layers:
            topk = topk_of(indexer_at(sites, ordinal))
            keys = latest_keys(positions, sites.layout.ratio, topk)
            selections[ordinal] = keys.expand(len(batch.ids), -1, -1)
        return selections

    return original.divergence(model, original.native, given=latest)


def latest_keys(positions: Tensor, ratio: int, topk: int) -> Tensor:
    """The latest keys that queries at some positions [S] may read, -1 where there are fewer.

    Args:
        positions: of the queries.
        ratio: tokens per key.
        topk: keys per query.

    Returns:
        int64 [S, min(topk, keys)].
    """
    visible = (positions + 1) // ratio
    width = max(1, min(topk, int(visible.max())))
    return (visible[:, None] - 1 - torch.arange(width, device=positions.device)).clamp(min=-1)
