"""A decode step takes the selection of an earlier one.

Prefill selects in full, and so do the decode steps 0, n, 2n … of a sequence; a step between takes,
layer by layer, what the last of those chose. Keys that have come since, the query's own included,
take the places of its lowest ranked keys (`recent`), so that a step never has more keys than the
indexer selects. Nothing is scored in between.

Our reading: no paper defines it for plain decoding. What is served is reuse over the draft steps
of multi-token prediction (`index_share_for_mtp_iteration` of GLM-5.2: NVIDIA/TensorRT-LLM #15806,
sgl-project/sglang #29787), where the chosen keys are taken as they are: ``recent = false``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from evalkit.config.selection import SelectionKind
from evalkit.dsa.features import IndexFeatures, at_rows
from evalkit.dsa.scores import index_scores
from evalkit.dsa.selection import Reuse
from evalkit.selections.rounding import Rounding


class Temporal(Rounding):
    """Reuse over decode steps.

    Attributes:
        every: decode steps from one selection to the next.
        recent: add the keys that came since.
    """

    kind: Literal["temporal"] = "temporal"
    every: int = Field(ge=1)
    recent: bool = True

    def scores(self, features: IndexFeatures, rows: Tensor) -> Tensor:
        """Those of the indexer (of rounded keys and queries), in a step that selects."""
        return index_scores(self.rounded(at_rows(features, rows)))

    def products(self, keys: int, heads: int) -> int:
        """Every head with every key, in a step that selects."""
        return heads * keys

    @property
    def reuse(self) -> Reuse | None:
        """How long a selection lasts."""
        return Reuse(self.every, self.recent)


KIND = SelectionKind(config=Temporal)
