"""Capture indexer inputs, or final hidden states, in a forward of the model under a schedule.

Everything a loss needs of a layer is its `IndexerCall`: the attention-block input, the query
latent, the rotary tables. A layer's visitor runs while that layer does, so the caller may reduce
at once and keep nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from distill.data.batch import Batch
from distill.errors import at, require_finite
from distill.models.causal_lm import CausalLM
from distill.models.early_exit import ForwardStoppedError
from evalkit.dsa import IndexerCall, ReuseSchedule, apply_schedule
from evalkit.dsa.families.sites import IndexerSites, set_topk, topk_of
from evalkit.dsa.overrides import swap_indexer
from evalkit.dsa.selection import SelectionPolicy

Visitor = Callable[[int, IndexerCall], None]

EVERY_KEY = 2**31 - 1
"""An ``index_topk`` above every length."""


def visit_indexer_calls(
    model: CausalLM,
    schedule: ReuseSchedule,
    batch: Batch,
    visit: Visitor,
    *,
    layers: Collection[int],
    policy: SelectionPolicy | None = None,
    decode_rows: Tensor | None = None,
    through_attention: bool = False,
) -> None:
    """One forward without gradient; `visit` sees the indexer calls of some layers as they happen.

    Args:
        model: a transformers causal language model of a supported family.
        schedule: what it runs under.
        batch: whole sequences from position 0; padding at their end needs no mask.
        visit: called as (ordinal, call), before the layer attends.
        layers: ordinals to visit; the forward stops at the last of them.
        policy: how full layers select; default: as the model was trained.
        decode_rows: bool [B, S]; True positions read the decode sources.
        through_attention: let the last of the layers attend as well, under the library's masks, for
            `evalkit.dsa.attention.attention_seen` to see.

    Raises:
        NonFiniteError: hidden states are NaN or infinite; names the layer.
    """
    wanted = frozenset(layers)
    last = max(wanted, default=-1) + through_attention

    def observe(ordinal: int, call: IndexerCall, _: Tensor | None) -> None:
        require_finite_call(schedule.layer_ids[ordinal], call)
        if ordinal in wanted:
            visit(ordinal, _without_cache(call))
        if ordinal >= last:
            raise ForwardStoppedError

    sparse = not through_attention
    under = apply_schedule(
        model, schedule, policy=policy, chunked=True, sparse=sparse, observe=observe
    )
    with torch.no_grad(), under as applied, suppress(ForwardStoppedError):
        applied.decode_rows = decode_rows
        model.get_decoder()(batch.ids, use_cache=False)


def final_hidden_states(
    model: CausalLM,
    schedule: ReuseSchedule,
    batch: Batch,
    *,
    visit: Visitor = lambda *_: None,
    policy: SelectionPolicy | None = None,
    decode_rows: Tensor | None = None,
    given: Mapping[int, Tensor] | None = None,
) -> Tensor:
    """Hidden states [B, S, hidden] after the last layer and norm, without gradient.

    Args:
        model: as in `visit_indexer_calls`.
        schedule: what it runs under.
        batch: whole sequences.
        visit: sees every indexer call, as (ordinal, call).
        policy: how full layers select; default: as the model was trained.
        decode_rows: bool [B, S]; True positions read the decode sources.
        given: selections [B, S, topk] of full layers (ordinals) that do not choose themselves.

    Raises:
        NonFiniteError: hidden states are NaN or infinite; names the layer.
    """

    def observe(ordinal: int, call: IndexerCall, _: Tensor | None) -> None:
        require_finite_call(schedule.layer_ids[ordinal], call)
        visit(ordinal, _without_cache(call))

    under = apply_schedule(
        model, schedule, policy=policy, chunked=True, sparse=True, observe=observe
    )
    with torch.no_grad(), under as applied:
        applied.decode_rows, applied.given = decode_rows, dict(given or {})
        hidden: Tensor = model.get_decoder()(batch.ids, use_cache=False).last_hidden_state
    require_finite(hidden, "hidden states after the last layer")
    return hidden


@contextmanager
def attending_densely(sites: IndexerSites) -> Iterator[None]:
    """Every indexer of the model selects all visible keys inside the block."""
    indexers = [
        indexer for i in range(len(sites.layout.layer_ids)) if (indexer := sites.indexer(i))
    ]
    before = [topk_of(indexer) for indexer in indexers]
    try:
        for indexer in indexers:
            set_topk(indexer, EVERY_KEY)
        yield
    finally:
        for indexer, topk in zip(indexers, before, strict=True):
            set_topk(indexer, topk)


def require_finite_call(layer: int, call: IndexerCall) -> None:
    """Refuse NaN and infinite inputs of a layer's indexer.

    Raises:
        NonFiniteError: names the layer (its id).
    """
    with at(f"layer {layer}"):
        require_finite(call.hidden, "hidden states")
        if call.q_resid is not None:
            require_finite(call.q_resid, "query latent")


def _without_cache(call: IndexerCall) -> IndexerCall:
    """Without the cache, and with the one mask row [B, 1, T] that says which keys are padding."""
    return replace(call, cache=None, mask=None if call.mask is None else call.mask[:, -1:])


@contextmanager
def swap_indexers(sites: IndexerSites, indexers: Mapping[int, nn.Module]) -> Iterator[None]:
    """Other indexers in the model inside the block, by ordinal; its own come back untouched."""
    with ExitStack() as stack:
        for ordinal, indexer in indexers.items():
            stack.enter_context(swap_indexer(sites.owners[ordinal], indexer))
        yield
