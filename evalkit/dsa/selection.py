"""What a selection policy is: how a full layer chooses keys, and at what cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from evalkit.dsa.features import IndexFeatures

REFERENCE_BITS = 16
"""Of a channel of an index key in the full scan that costs are relative to."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Decode steps that take the selection of an earlier one.

    Attributes:
        every: steps from one selection to the next; the first decode step selects.
        recent: keys that have come since take the places of the lowest ranked ones.
    """

    every: int
    recent: bool = True


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a policy ranks by, at some rows: scores of keys, or of blocks of them.

    Attributes:
        scores: fp32 [B, R, N], differentiable with respect to the index features.
        among: bool [B, R, N]: what a row ranks; what stands elsewhere is not to be read.
        taken: how many of the best are taken; None: as many keys as the indexer selects.
        block: keys of a block; those of block n begin with key n · block.
    """

    scores: Tensor
    among: Tensor
    taken: int | None = None
    block: int = 1


class SelectionPolicy(Protocol):
    """How the full layers of a schedule select; shared layers read as ever.

    `apply_schedule` takes the top-k of `scores` in every row. A row in which fewer keys have a
    score must have one for the first key of its sequence, unless the family takes -1 for "no key".
    """

    @property
    def reuse(self) -> Reuse | None:
        """What a step may remember of earlier ones; None: nothing."""
        ...

    @property
    def key_bits(self) -> int:
        """Bits of a channel of the keys that are scored, scales not counted."""
        ...

    def scores(self, features: IndexFeatures, rows: Tensor) -> Tensor:
        """Scores of some rows against every key, -inf where a key cannot be selected.

        Args:
            features: of sequences that begin at key 0: padding in front was taken away.
            rows: row numbers, [R] for all sequences alike or [B, R].

        Returns:
            fp32 [B, R, T]. Of a row they depend on its query and on the keys visible to it alone,
            so that chunks, batches and padding do not change a selection.
        """
        ...

    def products(self, keys: int, heads: int) -> int:
        """Products of an index query and a key that one row takes.

        Args:
            keys: visible to the row.
            heads: of the indexer; the full scan takes ``heads * keys``.
        """
        ...
