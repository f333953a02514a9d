"""The code that a model family needs: features of its indexer, and state of its shared layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall
from evalkit.dsa.features import IndexFeatures


class Features(Protocol):
    """Projections of one indexer call."""

    def __call__(
        self, indexer: nn.Module, call: IndexerCall, rows: Tensor | None = None, /
    ) -> IndexFeatures:
        """All keys; queries and head weights of all rows, or of `rows` [R] or [B, R]."""
        ...


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is done with the indexers of one family.

    Attributes:
        features: projections of a call.
        advance: updates the state that a shared layer must keep (DeepSeek-V4's compressor), or
            None.
    """

    features: Features
    advance: Callable[[nn.Module, IndexerCall], None] | None = None
