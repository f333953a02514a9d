"""What a forward shows: the inputs of every indexer, by layer.

Everything a loss needs of a layer is its `IndexerCall`: the attention-block input, the query
latent, the rotary tables. A layer's visitor runs while that layer does, so the caller may reduce
at once and keep nothing; the forward stops behind the last layer that anyone asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from distill.data.batch import Batch
from evalkit.dsa import IndexerCall, ReuseSchedule, apply_schedule
from evalkit.dsa.families.sites import IndexerSites

Visitor = Callable[[int, IndexerCall], None]


class _DoneError(Exception):
    """Nobody needs the layers that follow."""


def run(
    model: Any,
    schedule: ReuseSchedule,
    batch: Batch,
    visit: Visitor,
    *,
    layers: Collection[int],
    decode_rows: Tensor | None = None,
    output: bool = False,
    chunked: bool = True,
) -> Tensor | None:
    """One forward without gradient; `visit` sees the calls of some layers as they happen.

    Args:
        model: a transformers causal language model of a supported family.
        schedule: what it runs under.
        batch: whole sequences from position 0; padding at their end needs no mask.
        visit: called as (ordinal, call), before the layer attends.
        layers: ordinals to visit.
        decode_rows: bool [B, S]; True rows read the decode sources.
        output: run to the end and return the final hidden states [B, S, hidden].
        chunked: select by `evalkit.dsa.select`; False runs what stands in the model as it is.
    """
    wanted, last = frozenset(layers), max(layers, default=-1)

    def observe(ordinal: int, call: IndexerCall, _: Tensor | None) -> None:
        if ordinal in wanted:
            visit(ordinal, _lean(call))
        if ordinal >= last and not output:
            raise _DoneError

    under = apply_schedule(model, schedule, chunked=chunked, observe=observe)
    with torch.no_grad(), under as applied:
        applied.decode_rows = decode_rows
        try:
            result = model.get_decoder()(batch.ids, use_cache=False)
        except _DoneError:
            return None
    hidden: Tensor = result.last_hidden_state
    return hidden if output else None


def _lean(call: IndexerCall) -> IndexerCall:
    """Without the cache, and with the one mask row [B, 1, T] that says which keys are padding."""
    return replace(call, cache=None, mask=None if call.mask is None else call.mask[:, -1:])


@contextmanager
def placed(where: IndexerSites, indexers: Mapping[int, nn.Module]) -> Iterator[None]:
    """Other indexers in the model for a while, by ordinal; its own come back untouched."""
    own: dict[int, Any] = {i: where.owners[i].indexer for i in indexers}
    try:
        for ordinal, indexer in indexers.items():
            where.owners[ordinal].indexer = indexer
        yield
    finally:
        for ordinal, indexer in own.items():
            where.owners[ordinal].indexer = indexer
