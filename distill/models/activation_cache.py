"""Forwards that begin in the middle: nothing in front of a changed layer is computed again.

For fixed batches and a schedule in force, the output of every decoder layer and the selection of
every full layer are kept. A forward under a schedule that first differs at some layer starts there:
the layers in front of it return what they returned before. No model forward is copied; the model's
own runs, with those layers' forwards overridden for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from distill.data.batch import Batch
from evalkit.dsa import ReuseSchedule, apply_schedule
from evalkit.dsa.families.sites import indexer_sites


class Prefix:
    """What a model does on fixed batches under a schedule in force.

    Attributes:
        schedule: in force; None before the first `hold`.
        layer_runs: decoder layers run so far, times batches.
    """

    def __init__(
        self, model: Any, batches: Sequence[Batch], decode_rows: Sequence[Tensor | None]
    ) -> None:
        """`decode_rows`, bool [B, S] per batch, says which rows read the decode sources."""
        self.schedule: ReuseSchedule | None = None
        self.layer_runs = 0
        self._model, self._batches, self._rows = model, tuple(batches), tuple(decode_rows)
        root: Any = indexer_sites(model).root
        self._layers: Sequence[Any] = root.layers
        self._outputs: list[dict[int, Any]] = [{} for _ in batches]
        self._selections: list[dict[int, Tensor]] = [{} for _ in batches]

    def __len__(self) -> int:
        return len(self._layers)

    def hold(
        self, schedule: ReuseSchedule, *, start: int | None = None, only: int | None = None
    ) -> None:
        """Put a schedule in force: run from the first layer that it changes, and remember.

        Args:
            schedule: comes into force.
            start: absolute id of the first layer that changes, where it is not the schedule that
                makes the difference (other indexers stand in the model).
            only: remember the output of this layer alone, forget the others and stop behind it.
        """
        if start is None:
            start = 0 if self.schedule is None else self.first_change(schedule)
        if start is None or (only is not None and only < 0):
            self.schedule = schedule
            return
        for number in range(len(self._batches)):
            self._forward(schedule, number, start, keep=True, only=only)
            if only is not None:
                self._outputs[number] = {
                    k: v for k, v in self._outputs[number].items() if k == only
                }
        self.schedule = schedule

    def final(self, schedule: ReuseSchedule, number: int, *, start: int | None = None) -> Tensor:
        """Final hidden states [B, S, hidden] of a batch under a schedule near the one in force.

        `start`, as in `hold`, says where the difference begins if it is not the schedule's.
        """
        if self.schedule is None:
            raise ValueError("hold a schedule first")
        if start is None:
            start = self.first_change(schedule)
        return self._forward(schedule, number, len(self._layers) if start is None else start)

    def first_change(self, schedule: ReuseSchedule) -> int | None:
        """Absolute id of the first layer that does something else than now; None: there is none."""
        if self.schedule is None:
            return 0
        before, after = _doing(self.schedule), _doing(schedule)
        for layer, old, new in zip(schedule.layer_ids, before, after, strict=True):
            if old != new:
                return layer
        return None

    @torch.no_grad()
    def _forward(
        self,
        schedule: ReuseSchedule,
        number: int,
        start: int,
        *,
        keep: bool = False,
        only: int | None = None,
    ) -> Tensor:
        batch, outputs = self._batches[number], self._outputs[number]
        ids = schedule.layer_ids
        given = {f: s for f, s in self._selections[number].items() if ids[f] < start}
        fresh = dict(given)

        def observe(ordinal: int, _: Any, chosen: Tensor | None) -> None:
            if keep and chosen is not None:
                fresh[ordinal] = chosen.int()

        skipped = _skipped(self._layers, start, outputs.get(start - 1))
        kept = _kept(self._layers, start, outputs if keep else None, only)
        under = apply_schedule(self._model, schedule, chunked=True, observe=observe)
        with under as applied, skipped, kept:
            applied.given, applied.decode_rows = given, self._rows[number]
            final = batch.ids.new_empty(0)
            with suppress(_DoneError):
                final = self._model.get_decoder()(batch.ids, use_cache=False).last_hidden_state
        self.layer_runs += (len(self._layers) if only is None else only + 1) - start
        if keep:
            self._selections[number] = fresh
        return final


def _doing(schedule: ReuseSchedule) -> list[tuple[bool, int, int]]:
    sources = schedule.sources("prefill"), schedule.sources("decode")
    return list(zip(schedule.computes, *sources, strict=True))


@contextmanager
def _skipped(layers: Sequence[Any], start: int, output: Any) -> Iterator[None]:
    """Layers in front of `start` return what the last of them returned before."""
    own = [(layer, vars(layer).get("forward")) for layer in layers[:start]]
    try:
        for layer, _ in own:
            layer.forward = lambda *_, **__: output
        yield
    finally:
        for layer, forward in own:
            if forward is None:
                del layer.forward
            else:
                layer.forward = forward


class _DoneError(Exception):
    """Nobody needs the layers that follow."""


@contextmanager
def _kept(
    layers: Sequence[Any], start: int, into: dict[int, Any] | None, only: int | None
) -> Iterator[None]:
    """Remember what the layers from `start` on return, or one of them, and stop behind that."""
    handles = []
    if into is not None:
        for number in range(start, len(layers)) if only is None else (only,):

            def remember(_: Any, __: Any, output: Any, number: int = number) -> None:
                into[number] = output
                if only is not None:
                    raise _DoneError

            handles.append(layers[number].register_forward_hook(remember))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
