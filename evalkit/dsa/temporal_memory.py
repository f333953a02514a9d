"""Decode steps that take the selection of an earlier one: what layers keep between forwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from evalkit.dsa.features import IndexFeatures
from evalkit.dsa.scores import keys_seen
from evalkit.dsa.selection import Reuse

Select = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class _Kept:
    """The last selection of a layer in decode.

    Attributes:
        selection: [B, 1, k], best first.
        keys: how many keys its row could see [B, 1].
        steps: decode steps so far [B, 1].
    """

    selection: Tensor
    keys: Tensor
    steps: Tensor


class TemporalMemory:
    """Selections by layer, across the forwards of one batch of sequences.

    Step j of decode selects afresh where j is a multiple of `every`, and else takes what the last
    such step chose. Prefill always selects, and begins the count again.
    """

    def __init__(self, reuse: Reuse) -> None:
        self.reuse = reuse
        self._kept: dict[int, _Kept] = {}

    def select(
        self, ordinal: int, features: IndexFeatures, topk: int, decode: Tensor, select: Select
    ) -> tuple[Tensor, bool]:
        """The selection of a layer, and whether it was computed.

        Args:
            ordinal: of the layer.
            features: of the forward's rows.
            topk: keys per row.
            decode: bool [B, S], the rows that are decode steps.
            select: a selection of all rows afresh [B, S, k].
        """
        seen = _seen(features).expand(decode.shape)
        before = self._kept.get(ordinal)
        steps = torch.zeros_like(seen[:, :1])
        if before is not None and before.steps.shape == steps.shape:
            steps = torch.where(decode.all(1, keepdim=True), before.steps, steps)
        number = steps + decode.cumsum(1) - 1
        fresh = ~decode | (number % self.reuse.every == 0)
        width = min(topk, features.key.shape[1])
        ran = before is None or bool(fresh.any())
        chosen = select() if ran else seen.new_full((*seen.shape, width), -1)
        table, table_keys = chosen, seen
        if before is not None and before.steps.shape == steps.shape:
            table = torch.cat([_padded(before.selection, width), chosen], dim=1)
            table_keys = torch.cat([before.keys, seen], dim=1)
        shift = table.shape[1] - chosen.shape[1]
        row = torch.arange(seen.shape[1], device=seen.device).expand_as(seen)
        source = torch.where(decode & fresh, row + shift, 0).cummax(1).values
        remembered = _taken(table, source)
        keys = table_keys.gather(1, source)
        result = torch.where(fresh.unsqueeze(-1), chosen, self._with_recent(remembered, keys, seen))
        last = source[:, -1:]
        self._kept[ordinal] = _Kept(
            _taken(table, last), table_keys.gather(1, last), steps + decode.sum(1, keepdim=True)
        )
        return result, ran

    def keep_rows(self, rows: Tensor) -> None:
        """Go on with some sequences of the batch only: their numbers [R], in the order to come."""
        self._kept = {
            ordinal: _Kept(*(part[rows.to(part.device)] for part in (k.selection, k.keys, k.steps)))
            for ordinal, k in self._kept.items()
        }

    def _with_recent(self, remembered: Tensor, keys: Tensor, seen: Tensor) -> Tensor:
        """Remembered keys [B, S, k] behind those that came after the first `keys` ones [B, S]."""
        most = int((seen - keys).max())
        if not self.reuse.recent or most <= 0:
            return remembered
        new = keys.unsqueeze(-1) + torch.arange(most, device=keys.device)
        new = new.masked_fill(new >= seen.unsqueeze(-1), -1)
        every = torch.cat([new, remembered], dim=-1)
        order = (every < 0).int().argsort(dim=-1, stable=True)  # gaps go last
        return every.gather(-1, order)[..., : remembered.shape[-1]]


def _seen(features: IndexFeatures) -> Tensor:
    """How many leading keys each row may see [B or 1, S]; padding in front is among them."""
    return keys_seen(features, features.row_positions).clamp(max=features.key.shape[1])


def _padded(selection: Tensor, width: int) -> Tensor:
    """With gaps behind, up to `width` keys."""
    return torch.nn.functional.pad(selection, (0, width - selection.shape[-1]), value=-1)


def _taken(table: Tensor, rows: Tensor) -> Tensor:
    """Rows [B, R] of a table [B, S, k]."""
    return table.gather(1, rows.unsqueeze(-1).expand(-1, -1, table.shape[-1]))
