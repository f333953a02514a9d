"""Overlap of all layers' selections on one long text, in chunks: memory linear in the length.

Everything is measured on the checkpoint as it is (its own schedule), so that one forward serves
every schedule that one may think of: entry [i, j] says what layer i would give layer j. With a
policy, what layer i would give if it selected by it, against what layer j selects as trained.
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
from evalkit.dsa.families.sites import indexer_sites, topk_of
from evalkit.dsa.features import IndexFeatures, take_rows
from evalkit.dsa.overlap import jaccard, mass_recall, recall
from evalkit.dsa.schedule import ReuseSchedule
from evalkit.dsa.scores import index_scores, select
from evalkit.dsa.selection import REFERENCE_BITS, SelectionPolicy
from evalkit.dsa.transformers_model import TransformersModel, cache_argument, new_cache

WINDOW = 8
"""Rows of a length lie in its last eighth."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """Means over rows at one length; n layers with an indexer of their own.

    Attributes:
        jaccard: [n, n]; symmetric without a policy.
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
    policies: Sequence[SelectionPolicy] = (),
) -> tuple[tuple[int, ...], list[dict[int, Matrices]]]:
    """Overlaps at some lengths of one text, from one forward in chunks.

    Args:
        model: a transformers model whose family has index scores.
        ids: token ids [1, S].
        lengths: at most S each; the text's first so many tokens are what a row can see.
        rows: query rows per length.
        chunk: tokens per forward; bounds every [row, key] tensor.
        mass: measure attention mass, too.
        policies: that remember nothing; selecting by them is measured beside.

    Returns:
        ordinals of the layers measured, and matrices by length: as trained, then by each policy.
    """
    wanted = {length: rows_at(length, rows) for length in lengths}
    sites, probe = indexer_sites(model), _Probe()
    every = [_OverlapSums(mass), *(_OverlapSums(mass, policy) for policy in policies)]

    def observe(ordinal: int, _: IndexerCall, selection: Tensor | None) -> None:
        indexer = sites.indexer(ordinal)
        if indexer is not None and selection is not None:
            for sums in every:
                sums.observe(ordinal, selection, probe.features, topk_of(indexer))

    def attend(ordinal: int, q: Tensor, k: Tensor, scale: float, mask: Tensor | None) -> None:
        for sums in every:
            sums.attend(ordinal, q, k, scale, mask)

    attention = attention_seen(model, attend) if mass else nullcontext()
    under = apply_schedule(model, sites.layout.native, policy=probe, observe=observe)
    with attention, under as applied:
        applied.phase = "prefill"
        cache = new_cache(model)
        for start in range(0, max(lengths), chunk):
            end = min(start + chunk, max(lengths))
            for sums in every:
                sums.begin(start, end, wanted)
            _step(model, ids[:, start:end], start, cache)
            for sums in every:
                sums.reduce()
    return every[0].layers, [{n: sums.mean(n) for n in lengths} for sums in every]


class _Probe:
    """Selects as trained, and keeps the features of the last layer that did."""

    reuse = None
    key_bits = REFERENCE_BITS
    features: IndexFeatures

    def scores(self, features: IndexFeatures, rows: Tensor) -> Tensor:
        """Those of the indexer; the last rows of a forward see all of its keys."""
        self.features = features
        return index_scores(features, rows)

    def products(self, keys: int, heads: int) -> int:
        """Every head with every key."""
        return heads * keys


class _OverlapSums:
    """Sums over rows, chunk by chunk, of what layers give: as trained, or by a policy."""

    def __init__(self, mass: bool, policy: SelectionPolicy | None = None) -> None:
        self._mass = mass
        self._policy = policy
        self._wanted: dict[int, Tensor] = {}
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
        self._wanted.clear()
        self._mass_on.clear()
        self._rows = torch.tensor([r - start for r in inside]) if inside else None
        self._lengths = []
        for length, group in wanted.items():
            picked = [k for k, r in enumerate(inside) if r in set(group)]
            if picked:
                self._lengths.append((length, torch.tensor(picked)))

    def observe(self, ordinal: int, selection: Tensor, features: IndexFeatures, topk: int) -> None:
        """Keep what a layer selects at the rows, and what it gives."""
        if self._rows is None:
            return
        rows = self._rows.to(selection.device)
        self._wanted[ordinal] = given = selection[:, rows]
        if self._policy is not None:
            given = select(features, topk, rows, policy=self._policy)
        self._selections[ordinal] = given

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
            given = self._selections[i]
            wanted = self._wanted[j].to(given.device)
            values[0, a, b] = jaccard(given, wanted, self._keys)[0].cpu()
            values[1, a, b] = recall(given, wanted, self._keys)[0].cpu()
            if (i, j) in self._mass_on:
                values[2, a, b] = self._mass_on[i, j].cpu()
        return values

    def mean(self, length: int) -> Matrices:
        """Means over the rows of a length."""
        both, supplied, mass = self._sums[length] / self._counts[length]
        return Matrices(both, supplied, mass if self._mass else None, self._counts[length])


def source_values(
    matrix: Tensor, layers: Sequence[int], schedule: ReuseSchedule, *, own_too: bool = False
) -> Tensor:
    """Entry [σ(ℓ), ℓ] of every measured layer that reads another one's selection, in decode.

    Empty where every layer reads its own, unless these count too (`own_too`).
    """
    place = {ordinal: k for k, ordinal in enumerate(layers)}
    sources = schedule.sources("decode")
    reads = [(sources[j], j) for j in layers if own_too or sources[j] != j]
    pairs = [(place[source], place[j]) for source, j in reads if source in place]
    return torch.stack([matrix[a, b] for a, b in pairs]) if pairs else matrix.new_zeros(0)


def _step(model: nn.Module, ids: Tensor, start: int, cache: IndexerCache) -> None:
    """One chunk through the decoder; no logits are made."""
    decoder = cast(TransformersModel, model).get_decoder()
    positions = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
    caching = {"use_cache": True, cache_argument(decoder): cache}
    decoder(input_ids=ids, position_ids=positions, **caching)
