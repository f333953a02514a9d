"""The full scan of rounded keys and queries (`evalkit.selections.rounding`)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from evalkit.config.selection import SelectionKind
from evalkit.dsa.features import IndexFeatures, at_rows
from evalkit.dsa.scores import index_scores
from evalkit.selections.rounding import Rounding


class Precision(Rounding):
    """Rounded keys and queries, nothing else."""

    kind: Literal["precision"] = "precision"

    def scores(self, features: IndexFeatures, rows: Tensor) -> Tensor:
        """Those of the indexer on what rounding left."""
        return index_scores(self.rounded(at_rows(features, rows)))

    def products(self, keys: int, heads: int) -> int:
        """Every head with every key."""
        return heads * keys


KIND = SelectionKind(config=Precision)
