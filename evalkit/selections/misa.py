"""A few heads score: a router picks those that answer to the text at hand.

MISA (arXiv 2605.07363), as its authors' patch has it (MuLabPKU/TransArch, MISA_preprint): with the
keys in blocks of `block` and M blocks visible, head h counts for a query at t as

    E[t,h] = 1/M Σ_b |w[t,h] · ReLU(q[t,h] · mean_{s in b} k[s])|;

the `heads` largest (of equal ones the lower head) score every key, each with its own weight. With
`candidates` (MISA†, two stages) the best so many keys by those heads are scored again by all heads,
and the top-k is taken of these scores. The same in prefill and decode.

The mean of the last block is over the keys that the query sees. The patch takes the whole block,
which in prefill holds keys behind the query, so that how a prompt is cut would move the router.

With `keys` or `queries` in a low precision (`evalkit.selections.rounding`) everything is of the
rounded ones; means of keys are not rounded again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from evalkit.config.selection import SelectionKind
from evalkit.dsa.features import IndexFeatures, at_rows
from evalkit.dsa.scores import index_scores, key_ranking, keys_seen
from evalkit.dsa.selection import Ranking
from evalkit.selections.blocks import running_means
from evalkit.selections.rounding import Rounding


class Misa(Rounding):
    """Some heads per query.

    Attributes:
        heads: that score.
        block: keys whose mean the router sees.
        candidates: keys that all heads score again; None: those of the few heads decide.
    """

    kind: Literal["misa"] = "misa"
    heads: int = Field(ge=1)
    block: int = Field(default=1024, ge=1)
    candidates: int | None = Field(default=None, ge=1)

    def scores(self, features: IndexFeatures, rows: Tensor) -> Tensor:
        """Those of the routed heads, or of all heads among the candidates."""
        features = self.rounded(at_rows(features, rows))
        if not self._routes(features):
            return index_scores(features)
        routed = self._routed(features)
        if self.candidates is None:
            return routed
        best = routed.topk(self.candidates, dim=-1).indices
        chosen = torch.zeros_like(routed, dtype=torch.bool).scatter_(-1, best, True)
        return index_scores(features).masked_fill(~chosen, float("-inf"))

    def rankings(self, features: IndexFeatures) -> tuple[Ranking, ...]:
        """Keys by the routed heads; with candidates, then by all heads.

        The router itself has no gradient: it goes to the heads that it picked.
        """
        features = self.rounded(features)
        if not self._routes(features):
            return (key_ranking(features, index_scores(features)),)
        routed = key_ranking(features, self._routed(features))
        if self.candidates is None:
            return (routed,)
        chooses = keys_seen(features, features.row_positions) > self.candidates
        among = routed.among & chooses.unsqueeze(-1)
        first = replace(routed, among=among, taken=self.candidates)
        return first, key_ranking(features, index_scores(features))

    def _routes(self, features: IndexFeatures) -> bool:
        """Whether some heads do without others at all."""
        few = self.heads < features.query.shape[2]
        return few and features.key.shape[1] > (self.candidates or 0)

    def _routed(self, features: IndexFeatures) -> Tensor:
        """Scores by the active heads [B, R, T]."""
        weight = features.weight * self._active_heads(features)
        return index_scores(replace(features, weight=weight))

    @torch.no_grad()
    def _active_heads(self, features: IndexFeatures) -> Tensor:
        """Bool [B, R, H]."""
        means = running_means(features.key, self.block)
        whole = means[:, self.block - 1 :: self.block]
        seen = keys_seen(features, features.row_positions).clamp(min=0, max=means.shape[1])
        seen = seen.expand(features.query.shape[:2])
        index = (seen - 1).clamp(min=0).unsqueeze(-1).expand(-1, -1, means.shape[-1])
        last = means.gather(1, index)
        in_last = (seen % self.block != 0).unsqueeze(-1)
        closed = torch.arange(whole.shape[1], device=seen.device) < (seen // self.block)[..., None]
        energy = []
        for head in range(features.query.shape[2]):
            query = features.query[:, :, head]
            every = torch.bmm(query, whole.mT).relu().masked_fill(~closed, 0.0).sum(-1)
            energy.append(every + torch.linalg.vecdot(query, last).relu() * in_last[..., 0])
        value = torch.stack(energy, dim=-1) * features.weight.abs()
        order = value.sort(dim=-1, descending=True, stable=True).indices
        best = order[..., : self.heads]
        return torch.zeros_like(value, dtype=torch.bool).scatter_(-1, best, True)

    def products(self, keys: int, heads: int) -> int:
        """All heads with the means of the blocks, some with all keys, all with the candidates.

        Where all heads score every key in the end, there is nothing to route.
        """
        if self.heads >= heads or keys <= (self.candidates or 0):
            return heads * keys
        again = heads * (self.candidates or 0)
        return heads * -(-keys // self.block) + self.heads * keys + again

    def problem(self, topk: int) -> str:
        """Fewer candidates than the indexer selects."""
        if self.candidates is None or self.candidates >= topk:
            return ""
        return f"{self.candidates} candidates are fewer than index_topk {topk}: take as many"


KIND = SelectionKind(config=Misa)
