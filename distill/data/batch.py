"""A batch of packed sequences."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences of one forward.

    Attributes:
        ids: token ids [B, S], padded at the end.
        valid: bool [B, S], False at padding.
        first: number of the first sequence in its data set; names the draws made for it.
    """

    ids: Tensor
    valid: Tensor
    first: int = 0

    @property
    def own_draws(self) -> range:
        """The draws that are made for held-out and calibration text: the sequences' numbers."""
        return range(self.first, self.first + len(self.ids))

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return replace(self, ids=self.ids.to(device), valid=self.valid.to(device))
