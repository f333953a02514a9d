"""Every key is scored by every head: the indexer as it was trained."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from evalkit.config.selection import Selection, SelectionKind
from evalkit.dsa.features import IndexFeatures
from evalkit.dsa.scores import index_scores


class Full(Selection):
    """The full scan."""

    kind: Literal["full"] = "full"

    def scores(self, features: IndexFeatures, rows: Tensor) -> Tensor:
        """Those of the indexer."""
        return index_scores(features, rows)

    def products(self, keys: int, heads: int) -> int:
        """Every head with every key."""
        return heads * keys


KIND = SelectionKind(config=Full)
