"""Overlap of all layers' selections on one long text, in chunks: memory linear in the length.

Everything is measured on the checkpoint as it is (its own schedule), so that one forward serves
every schedule that one may think of: entry [i, j] says what layer i would give layer j.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from typing import cast

import torch
from torch import Tensor, nn

from evalkit.dsa.apply import apply_schedule
from evalkit.dsa.attention import allowed_keys, attention_seen, attention_share
from evalkit.dsa.call import IndexerCache, IndexerCall
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.features import take_rows
from evalkit.dsa.overlap import jaccard, mass_recall, recall
from evalkit.dsa.schedule import ReuseSchedule
from evalkit.dsa.transformers_model import TransformersModel, cache_argument, new_cache

WINDOW = 8
"""Rows of a length lie in its last eighth."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """Means over rows at one length; n layers with an indexer of their own.

    Attributes:
        jaccard: [n, n], symmetric.
        recall: [n, n]: share of what column j selects that row i selects.
        mass: [n, n]: share of the attention that j pays which falls on what i selects; 0 above the
            diagonal (i > j, which no schedule uses). None where attention cannot be seen.
        rows: query rows.
    """

    jaccard: Tensor
    recall: Tensor
    mass: Tensor | None
    rows: int


def rows_at(length: int, count: int) -> list[int]:
    """Query rows of a length: evenly over its last eighth, the very last one included."""
    first = length - max(1, length // WINDOW)
    step = (length - 1 - first) / max(1, count - 1)
    return sorted({length - 1 - round(step * k) for k in range(count)})


@torch.no_grad()
def scan(
    model: nn.Module,
    ids: Tensor,
    lengths: Sequence[int],
    *,
    rows: int = 32,
    chunk: int = 1024,
    mass: bool = True,
) -> tuple[tuple[int, ...], dict[int, Matrices]]:
    """Overlaps at some lengths of one text, from one forward in chunks.

    Args:
        model: a transformers model whose family has index scores.
        ids: token ids [1, S].
        lengths: at most S each; the text's first so many tokens are what a row can see.
        rows: query rows per length.
        chunk: tokens per forward; bounds every [row, key] tensor.
        mass: measure attention mass, too.

    Returns:
        ordinals of the layers measured, and matrices by length.
    """
    wanted = {length: rows_at(length, rows) for length in lengths}
    sums = _OverlapSums(mass)
    native = indexer_sites(model).layout.native
    attention = attention_seen(model, sums.attend) if mass else nullcontext()
    with attention, apply_schedule(model, native, chunked=True, observe=sums.observe) as applied:
        applied.phase = "prefill"
        cache = new_cache(model)
        for start in range(0, max(lengths), chunk):
            end = min(start + chunk, max(lengths))
            sums.begin(start, end, wanted)
            _step(model, ids[:, start:end], start, cache)
            sums.reduce()
    return sums.layers, {length: sums.mean(length) for length in lengths}


class _OverlapSums:
    """Sums over rows, chunk by chunk."""

    def __init__(self, mass: bool) -> None:
        self._mass = mass
        self._rows: Tensor | None = None
        self._keys = 0
        self._lengths: list[tuple[int, Tensor]] = []
        self._selections: dict[int, Tensor] = {}
        self._mass_on: dict[tuple[int, int], Tensor] = {}
        self._sums: dict[int, Tensor] = {}
        self._counts: dict[int, int] = {}
        self.layers: tuple[int, ...] = ()

    def begin(self, start: int, end: int, wanted: dict[int, list[int]]) -> None:
        """Set which rows of the chunk count, and for which lengths."""
        inside = sorted({r for group in wanted.values() for r in group if start <= r < end})
        self._keys = end
        self._selections.clear()
        self._mass_on.clear()
        self._rows = torch.tensor([r - start for r in inside]) if inside else None
        self._lengths = []
        for length, group in wanted.items():
            picked = [k for k, r in enumerate(inside) if r in set(group)]
            if picked:
                self._lengths.append((length, torch.tensor(picked)))

    def observe(self, ordinal: int, _: IndexerCall, selection: Tensor | None) -> None:
        """Keep a layer's selection at the rows."""
        if self._rows is not None and selection is not None:
            self._selections[ordinal] = selection[:, self._rows.to(selection.device)]

    def attend(self, ordinal: int, q: Tensor, k: Tensor, scale: float, mask: Tensor | None) -> None:
        """Attention mass of a layer on what it and earlier layers selected."""
        if self._rows is None or ordinal not in self._selections:
            return
        rows = self._rows.to(q.device)[None]
        seen = allowed_keys(rows, k.shape[2], mask, first=k.shape[2] - q.shape[2])
        query = take_rows(q.transpose(1, 2), rows).transpose(1, 2)
        share = attention_share(query, k, scale, seen).exp()
        for giver, selection in self._selections.items():
            self._mass_on[giver, ordinal] = mass_recall(selection.to(share.device), share)[0]

    def reduce(self) -> None:
        """Add the chunk's rows to the sums of their lengths."""
        if self._rows is None:
            return
        self.layers = tuple(sorted(self._selections))
        values = self._pairs(len(self._rows))
        for length, picked in self._lengths:
            total = values[..., picked].sum(-1)
            self._sums[length] = self._sums.get(length, torch.zeros_like(total)) + total
            self._counts[length] = self._counts.get(length, 0) + len(picked)

    def _pairs(self, rows: int) -> Tensor:
        """Jaccard, recall and mass of every pair of layers at the chunk's rows [3, n, n, rows]."""
        values = torch.zeros(3, len(self.layers), len(self.layers), rows)
        for (a, i), (b, j) in product(enumerate(self.layers), repeat=2):
            if a < b:
                one = self._selections[i]
                two = self._selections[j].to(one.device)
                values[0, a, b] = values[0, b, a] = jaccard(one, two, self._keys)[0].cpu()
                values[1, a, b] = recall(one, two, self._keys)[0].cpu()
                values[1, b, a] = recall(two, one, self._keys)[0].cpu()
            elif a == b:
                values[:2, a, a] = 1.0
            if (i, j) in self._mass_on:
                values[2, a, b] = self._mass_on[i, j].cpu()
        return values

    def mean(self, length: int) -> Matrices:
        """Means over the rows of a length."""
        both, supplied, mass = self._sums[length] / self._counts[length]
        return Matrices(both, supplied, mass if self._mass else None, self._counts[length])


def source_values(matrix: Tensor, layers: Sequence[int], schedule: ReuseSchedule) -> Tensor:
    """Entry [σ(ℓ), ℓ] of every measured layer that reads another one's selection, in decode.

    Empty where every layer reads its own.
    """
    place = {ordinal: k for k, ordinal in enumerate(layers)}
    sources = schedule.sources("decode")
    pairs = [
        (place[sources[j]], place[j]) for j in layers if sources[j] != j if sources[j] in place
    ]
    return torch.stack([matrix[a, b] for a, b in pairs]) if pairs else matrix.new_zeros(0)


def _step(model: nn.Module, ids: Tensor, start: int, cache: IndexerCache) -> None:
    """One chunk through the decoder; no logits are made."""
    decoder = cast(TransformersModel, model).get_decoder()
    positions = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
    caching = {"use_cache": True, cache_argument(decoder): cache}
    decoder(input_ids=ids, position_ids=positions, **caching)
