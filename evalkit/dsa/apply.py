"""apply_schedule: run a live model under a ReuseSchedule, and leave it exactly as it was.

Each indexer's forward is overridden on the instance, so the module tree, parameter names, device
placement and hooks stay as they are. A layer that computes runs its own indexer and publishes the
selection; what a layer reads comes from its source. Selections live in a carrier for one forward
of the model and are dropped when the next one begins.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from evalkit.dsa.call import IndexerCall
from evalkit.dsa.families.base import UnsupportedModelError, bind
from evalkit.dsa.families.seam import Seam, seam
from evalkit.dsa.overrides import override_forward, swap_indexer
from evalkit.dsa.schedule import Phase, ReuseSchedule, ScheduleError
from evalkit.dsa.scores import select

_MARK = "_evalkit_applied_schedule"
_ENTER = threading.Lock()

Observer = Callable[[int, IndexerCall, Tensor | None], None]


class ScheduleInUseError(RuntimeError):
    """The model is already under a schedule, or two threads run it at once."""


class AppliedSchedule:
    """Handle of a model under a schedule.

    Attributes:
        schedule: the schedule in force.
        phase: ``"prefill"`` or ``"decode"`` to say which one a forward belongs to; None (default)
            takes a single query row for decode and several for prefill.
        decode_rows: bool [B, S] for a whole forward that contains both: True rows read the decode
            sources, False rows the prefill sources. Overrides `phase` while set.
        calls: how often each ordinal's indexer ran.
        given: selections [B, S, topk] by ordinal that the next forwards begin with: of layers that
            the caller keeps from running in them.
    """

    def __init__(
        self, schedule: ReuseSchedule, where: Seam, observe: Observer | None, chunked: bool
    ) -> None:
        self.schedule = schedule
        self.phase: Phase | None = None
        self.decode_rows: Tensor | None = None
        self.calls: Counter[int] = Counter()
        self.given: dict[int, Tensor] = {}
        self._where = where
        self._observe = observe
        self._chunked = chunked
        self._carrier: dict[int, Tensor] = {}
        self._thread: int | None = None
        self._sources = {p: schedule.sources(p) for p in ("prefill", "decode")}
        self._release = _releases(schedule)

    # -- one forward ----------------------------------------------------------------------------

    def _begin(self, *_: Any) -> None:
        if self._thread not in (None, threading.get_ident()):
            raise ScheduleInUseError(
                "two threads run this model under one schedule at once: give each its own copy"
            )
        self._thread = threading.get_ident()
        self._carrier.clear()
        self._carrier.update(self.given)

    def _end(self, *_: Any) -> None:
        self._thread = None
        self._carrier.clear()

    def _run(self, ordinal: int, own: Callable[..., Tensor] | None, args: Any, kwargs: Any) -> Any:
        """What the seam of one layer does instead of its indexer's forward (`own`)."""
        where = self._where
        indexer: Any = where.owners[ordinal].indexer if own is not None else None
        call = bind(where.family, indexer, where.layout.layer_ids[ordinal], args, kwargs)
        selection = None
        if own is not None and self.schedule.computes[ordinal]:
            selection = self._select(indexer, call) if self._chunked else own(*args, **kwargs)
            self._carrier[ordinal] = selection
            self.calls[ordinal] += 1
        elif own is not None and where.family.advance is not None:
            with torch.no_grad():
                where.family.advance(indexer, call)
        if self._observe is not None:
            self._observe(ordinal, call, selection)
        read = self._read(ordinal, call.hidden)
        for source in self._release[ordinal]:
            self._carrier.pop(source, None)
        return read

    @torch.no_grad()
    def _select(self, indexer: Any, call: IndexerCall) -> Tensor:
        """The layer's selection by our scores: memory linear in the length, less time."""
        family = self._where.family
        if family.features is None:
            raise UnsupportedModelError(f"no chunked selection: {family.note}")
        chosen = select(family.features(indexer, call), indexer.index_topk)
        # A row with a gap has every visible key; naming key 0 there once more changes nothing.
        return chosen if family.sentinel else chosen.clamp(min=0)

    def _read(self, ordinal: int, hidden: Tensor) -> Tensor:
        if self.decode_rows is not None:
            prefill = self._selection(self._sources["prefill"][ordinal], ordinal, hidden)
            decode = self._selection(self._sources["decode"][ordinal], ordinal, hidden)
            rows = self.decode_rows.to(hidden.device).unsqueeze(-1)
            return prefill if decode is prefill else torch.where(rows, decode, prefill)
        phase = self.phase or ("decode" if hidden.shape[1] == 1 else "prefill")
        return self._selection(self._sources[phase][ordinal], ordinal, hidden)

    def _selection(self, source: int, reader: int, hidden: Tensor) -> Tensor:
        if source not in self._carrier:
            ids = self._where.layout.layer_ids
            raise ScheduleError(
                f"layer {ids[reader]} reads the selection of layer {ids[source]}, which was not"
                " made in this forward: run the whole model, not single layers"
            )
        return self._carrier[source].to(hidden.device)


def _releases(schedule: ReuseSchedule) -> list[list[int]]:
    """Per ordinal, the selections that no later layer reads: they are dropped there."""
    last = {f: f for f in schedule.full_layers}
    for sources in (schedule.sources("prefill"), schedule.sources("decode")):
        for reader, source in enumerate(sources):
            last[source] = max(last[source], reader)
    return [[s for s, reader in last.items() if reader == i] for i in range(len(schedule))]


class _Reader(nn.Module):
    """Stands where a checkpoint ships no indexer (a natively shared layer)."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self._run = run

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(None, args, kwargs)


@contextmanager
def apply_schedule(
    model: nn.Module,
    schedule: ReuseSchedule,
    *,
    chunked: bool = False,
    observe: Observer | None = None,
) -> Iterator[AppliedSchedule]:
    """Run `model` under `schedule` inside the block; undo exactly at its end, errors included.

    Args:
        model: a transformers model of a supported family.
        schedule: over the model's indexer-bearing layers.
        chunked: let full layers select by `evalkit.dsa.select` instead of the installed library's
            indexer, which holds a [query, head, key] tensor. The two differ where scores at the
            top-k border are equal to rounding.
        observe: called per layer as (ordinal, call, own selection or None), before attention.

    Raises:
        UnsupportedModelError: no seam for this model.
        ScheduleError: wrong number of layers or layer ids, or a full layer where the checkpoint
            has no indexer.
        ScheduleInUseError: nested or concurrent use on one model.
    """
    where = seam(model)
    _check_fit(schedule, where)
    applied = AppliedSchedule(schedule, where, observe, chunked)
    with _ENTER:
        if getattr(where.root, _MARK, None) is not None:
            raise ScheduleInUseError(
                "this model is already under a schedule: leave that block first (one schedule at"
                " a time; combine reuse and lag in one ReuseSchedule)"
            )
        object.__setattr__(where.root, _MARK, applied)
    with ExitStack() as stack:
        stack.callback(object.__delattr__, where.root, _MARK)
        stack.callback(where.root.register_forward_pre_hook(applied._begin).remove)
        end = where.root.register_forward_hook(applied._end, always_call=True)
        stack.callback(end.remove)
        for ordinal, owner in enumerate(where.owners):
            stack.enter_context(_installed(applied, ordinal, owner))
        yield applied


def _installed(
    applied: AppliedSchedule, ordinal: int, owner: nn.Module
) -> AbstractContextManager[None]:
    """The schedule in place of one layer's indexer, or where a natively shared layer has none."""
    indexer: Any = owner.indexer
    if indexer is None:
        return swap_indexer(owner, _Reader(lambda own, a, k: applied._run(ordinal, own, a, k)))
    own = indexer.forward  # another library's hook may sit there: run through it
    return override_forward(indexer, lambda *a, **k: applied._run(ordinal, own, a, k))


def _check_fit(schedule: ReuseSchedule, where: Seam) -> None:
    ids = where.layout.layer_ids
    if schedule.layer_ids != ids:
        if len(schedule) != len(ids):
            raise ScheduleError(
                f"the schedule has {len(schedule)} layers, the model {len(ids)} with an indexer"
                f" (layer ids {', '.join(map(str, ids[:8]))}{' …' if len(ids) > 8 else ''})"
            )
        raise ScheduleError(
            f"the schedule counts layers {schedule.layer_ids[:4]}…, the model has its indexers in"
            f" layers {ids[:4]}…: build it with layers={list(ids)}"
        )
    for ordinal, owner in enumerate(where.owners):
        indexer: Any = owner.indexer
        if schedule.computes[ordinal] and indexer is None:
            raise ScheduleError(
                f"layer {ids[ordinal]} has no indexer in this checkpoint (native pattern"
                f" {where.layout.native.pattern}): it can be made sparser, never denser"
            )
