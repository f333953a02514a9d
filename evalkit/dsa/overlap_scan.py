"""Overlap of all layers' selections over one long text, in chunks: memory linear in the length.

Everything is measured on the checkpoint as it is (its own schedule), so that one forward serves
every schedule that one may think of: entry [i, j] says what layer i would give layer j.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evalkit.dsa.apply import apply_schedule
from evalkit.dsa.attention import allowed_keys, attention_seen, attention_share
from evalkit.dsa.call import IndexerCall
from evalkit.dsa.families.seam import Seam, seam
from evalkit.dsa.features import take_rows
from evalkit.dsa.overlap import jaccard, mass_recall, recall
from evalkit.dsa.schedule import ReuseSchedule

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


def sees_attention(model: Any) -> bool:
    """Whether attention mass can be measured (see `attention_seen`)."""
    used = model.config.get_text_config()._attn_implementation
    return used == "sdpa" and not seam(model).family.sentinel


@torch.no_grad()
def scan(
    model: Any,
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
    where = seam(model)
    wanted = {length: rows_at(length, rows) for length in lengths}
    tally = _Tally(where, mass)
    native = where.layout.native
    seen = attention_seen(model, tally.attend) if mass else nullcontext()
    with seen, apply_schedule(model, native, chunked=True, observe=tally.observe) as applied:
        applied.phase = "prefill"
        cache: Any = _cache(model)
        for start in range(0, max(lengths), chunk):
            end = min(start + chunk, max(lengths))
            tally.begin(start, end, wanted)
            _step(model, ids[:, start:end], start, cache)
            tally.reduce()
    return tally.layers, {length: tally.mean(length) for length in lengths}


class _Tally:
    """Sums over rows, chunk by chunk."""

    def __init__(self, where: Seam, mass: bool) -> None:
        self._where = where
        self._mass = mass
        self._rows: Tensor | None = None
        self._keys = 0
        self._lengths: list[tuple[int, Tensor]] = []
        self._chosen: dict[int, Tensor] = {}
        self._taken: dict[tuple[int, int], Tensor] = {}
        self._sums: dict[int, Tensor] = {}
        self._counts: dict[int, int] = {}
        self.layers: tuple[int, ...] = ()

    def begin(self, start: int, end: int, wanted: dict[int, list[int]]) -> None:
        """Tell which rows of the chunk count, and for which lengths."""
        inside = sorted({r for group in wanted.values() for r in group if start <= r < end})
        self._keys = end
        self._chosen.clear()
        self._taken.clear()
        self._rows = torch.tensor([r - start for r in inside]) if inside else None
        self._lengths = []
        for length, group in wanted.items():
            picked = [k for k, r in enumerate(inside) if r in set(group)]
            if picked:
                self._lengths.append((length, torch.tensor(picked)))

    def observe(self, ordinal: int, _: IndexerCall, selection: Tensor | None) -> None:
        """Keep a layer's selection at the rows."""
        if self._rows is not None and selection is not None:
            self._chosen[ordinal] = selection[:, self._rows.to(selection.device)]

    def attend(self, ordinal: int, q: Tensor, k: Tensor, scale: float, mask: Tensor | None) -> None:
        """How much of a layer's attention falls on what it and earlier layers selected."""
        if self._rows is None or ordinal not in self._chosen:
            return
        rows = self._rows.to(q.device)[None]
        seen = allowed_keys(rows, k.shape[2], mask, first=k.shape[2] - q.shape[2])
        query = take_rows(q.transpose(1, 2), rows).transpose(1, 2)
        share = attention_share(query, k, scale, seen).exp()
        for giver, given in self._chosen.items():
            self._taken[giver, ordinal] = mass_recall(given.to(share.device), share)[0]

    def reduce(self) -> None:
        """Add the chunk's rows to the sums of their lengths."""
        if self._rows is None:
            return
        self.layers = tuple(sorted(self._chosen))
        n = len(self.layers)
        values = torch.zeros(3, n, n, len(self._rows))
        for a, i in enumerate(self.layers):
            for b, j in enumerate(self.layers):
                if a < b:
                    one = self._chosen[i]
                    two = self._chosen[j].to(one.device)
                    values[0, a, b] = values[0, b, a] = jaccard(one, two, self._keys)[0].cpu()
                    values[1, a, b] = recall(one, two, self._keys)[0].cpu()
                    values[1, b, a] = recall(two, one, self._keys)[0].cpu()
                elif a == b:
                    values[:2, a, a] = 1.0
                if (i, j) in self._taken:
                    values[2, a, b] = self._taken[i, j].cpu()
        for length, picked in self._lengths:
            total = values[..., picked].sum(-1)
            self._sums[length] = self._sums.get(length, torch.zeros_like(total)) + total
            self._counts[length] = self._counts.get(length, 0) + len(picked)

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


def _cache(model: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=model.config.get_text_config())


def _step(model: Any, ids: Tensor, start: int, cache: Any) -> None:
    """One chunk through the decoder; no logits are made."""
    import inspect

    decoder = model.get_decoder()
    names = inspect.signature(decoder.forward).parameters
    name = "cache" if "cache" in names else "past_key_values"
    positions = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
    decoder(input_ids=ids, position_ids=positions, use_cache=True, **{name: cache})
