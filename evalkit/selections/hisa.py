"""Hierarchical search: the best blocks of keys first, the indexer's scores inside them only.

HISA (arXiv 2603.28458), as its authors' kernels have it (tile-ai/tilelang, examples/dsa_hisa):
keys are cut into blocks of `block`; a block stands for itself by the mean of its keys, scored as a
key is,

    J[t,b] = Σ_h w[t,h] · ReLU(q[t,h] · mean_{s in b} k[s]);

the first block and the one that the query's last visible key lies in are always kept, the best
others by J fill up to `blocks`; of equal ones the earlier. Every key of a kept block has the
indexer's own score, all others none. The same in prefill and decode.

With `keys` or `queries` in a low precision (`evalkit.selections.rounding`) both steps see the
rounded ones. A mean is that of the rounded keys, and rounded again like a key.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from evalkit.config.selection import SelectionKind
from evalkit.dsa.features import IndexFeatures, at_rows
from evalkit.dsa.scores import index_scores, key_ranking, keys_seen, raw_scores
from evalkit.dsa.selection import Ranking
from evalkit.selections.blocks import block_means
from evalkit.selections.rounding import Rounding


class Hisa(Rounding):
    """Blocks first, keys inside the best ones.

    Attributes:
        block: keys of a block, counted from the first key of the sequence.
        blocks: blocks kept per query, the first and the last one included.
    """

    kind: Literal["hisa"] = "hisa"
    block: int = Field(ge=1)
    blocks: int = Field(ge=2)

    def scores(self, features: IndexFeatures, rows: Tensor) -> Tensor:
        """Those of the indexer, in the kept blocks."""
        features, keys = self.rounded(at_rows(features, rows)), features.key.shape[1]
        scores = index_scores(features)
        if keys <= self.block * self.blocks:
            return scores
        kept = self._kept_blocks(features).repeat_interleave(self.block, dim=-1)
        return scores.masked_fill(~kept[..., :keys], float("-inf"))

    def _kept_blocks(self, features: IndexFeatures) -> Tensor:
        """Bool [B, R, N]: the blocks that each row keeps."""
        count = -(-features.key.shape[1] // self.block)
        coarse = raw_scores(features, self._means(features))
        coarse = torch.nn.functional.pad(coarse, (0, count - coarse.shape[-1]))
        number = torch.arange(count, device=coarse.device)
        last = self._last_block(features)
        # the mean of the last block would hold keys behind the query: it is never looked at
        forced = (number == 0) | (number == last)
        coarse = coarse.masked_fill(number > last, float("-inf"))
        coarse = coarse.masked_fill(forced, float("inf"))
        best = coarse.sort(dim=-1, descending=True, stable=True).indices[..., : self.blocks]
        return torch.zeros_like(coarse, dtype=torch.bool).scatter_(-1, best, True)

    def _means(self, features: IndexFeatures) -> Tensor:
        """Means [B, N, d] of the whole blocks, as keys are."""
        return self.as_keys(block_means(features.key, self.block))

    def _last_block(self, features: IndexFeatures) -> Tensor:
        """Number of the block that each row's last visible key lies in [B or 1, R, 1]."""
        seen = keys_seen(features, features.row_positions)
        return ((seen - 1) // self.block).unsqueeze(-1)

    def rankings(self, features: IndexFeatures) -> tuple[Ranking, ...]:
        """Blocks that are not kept anyway, where there is a choice; then all keys.

        Keys outside the kept blocks are ranked, too: they are to be selected where they are kept.
        """
        features, free = self.rounded(features), self.blocks - 2
        keys = key_ranking(features, index_scores(features))
        if free == 0 or features.key.shape[1] <= self.block * self.blocks:
            return (keys,)
        scores = raw_scores(features, self._means(features))
        number = torch.arange(scores.shape[-1], device=scores.device)
        last = self._last_block(features)
        among = (number > 0) & (number < last) & (last >= self.blocks)
        return Ranking(scores, among.expand(scores.shape), free, self.block), keys

    def products(self, keys: int, heads: int) -> int:
        """Every head with the means of all blocks, then with the keys of the kept ones.

        Where all blocks are kept no mean is needed.
        """
        count = -(-keys // self.block)
        if count <= self.blocks:
            return heads * keys
        in_last = keys - (count - 1) * self.block
        return heads * (count + (self.blocks - 1) * self.block + in_last)

    def problem(self, topk: int) -> str:
        """It keeps fewer keys than the indexer selects."""
        if self.block * self.blocks >= topk:
            return ""
        least = -(-topk // self.block)
        return (
            f"{self.blocks} blocks of {self.block} keys are fewer than index_topk {topk}: keep"
            f" blocks = {least} or more"
        )


KIND = SelectionKind(config=Hisa)
