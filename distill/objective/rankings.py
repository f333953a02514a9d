"""What a student ranks by, and what its teachers say about the same.

A full scan ranks keys once. A selection policy may rank more than once (`evalkit.dsa.selection`):
blocks before keys, keys by a few heads before all of them. Each ranking is compared with the
consumers' distribution over what it ranks; of a block, that is the sum over its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from distill.objective.teachers import Teacher
from evalkit.config.selection import Selection
from evalkit.dsa import IndexFeatures, index_scores
from evalkit.dsa.scores import key_ranking
from evalkit.dsa.selection import Ranking


def rankings(features: IndexFeatures, policy: Selection | None) -> tuple[Ranking, ...]:
    """What an indexer ranks by under a policy, the keys last; without one, its scores."""
    if policy is None:
        return (key_ranking(features, index_scores(features, chunk_elements=2**62)),)
    ranked = policy.rankings(features)
    if ranked:
        return ranked
    rows = torch.arange(features.query.shape[1], device=features.query.device)
    keys = key_ranking(features, policy.scores(features, rows))
    return (replace(keys, among=keys.among & ~torch.isneginf(keys.scores)),)


@dataclass(frozen=True, slots=True)
class RankedTeacher:
    """A teacher asked about what a student ranks, its scores' softmax over that alone.

    Attributes:
        teacher: at the same queries.
        ranking: of a chunk of them.
    """

    teacher: Teacher
    ranking: Ranking

    @property
    def keys(self) -> int:
        """N: keys, or blocks of them."""
        return self.ranking.scores.shape[-1]

    def scores(self, part: slice, keys: int) -> Tensor:
        """See `distill.objective.teachers.Teacher`; `part` is the chunk of the ranking."""
        block = self.ranking.block
        scores = self.teacher.scores(part, keys * block)
        if block > 1:
            scores = scores.reshape(*scores.shape[:-1], keys, block).logsumexp(-1)
        return scores.masked_fill(~self.ranking.among, float("-inf"))
