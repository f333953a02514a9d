"""Forwards that begin in the middle: layers before the first changed one are not computed again.

For fixed batches and a committed schedule, the output of every decoder layer and the selection of
every full layer are cached. A forward under a schedule that first differs at some layer starts
there: the layers before it return what they returned before. No model forward is copied; the
model's own runs, with those layers' forwards overridden for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import cast

import torch
from torch import Tensor, nn

from distill.data.batch import Batch
from distill.errors import require_finite
from distill.models.causal_lm import CausalLM
from distill.models.early_exit import ForwardStoppedError
from distill.models.forward import require_finite_call
from evalkit.dsa import IndexerCall, ReuseSchedule, apply_schedule
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.overrides import override_forward
from evalkit.dsa.selection import SelectionPolicy

LayerOutput = Tensor | tuple[Tensor, ...]


class ActivationCache:
    """Activations of a model on fixed batches under the committed schedule.

    Attributes:
        schedule: the committed one; None before the first `commit`.
        layer_runs: decoder layers run so far, times batches.
    """

    def __init__(
        self,
        model: CausalLM,
        batches: Sequence[Batch],
        decode_rows: Sequence[Tensor | None],
        policy: SelectionPolicy | None = None,
    ) -> None:
        """Prepare forwards.

        Args:
            model: that runs.
            batches: whole sequences.
            decode_rows: bool [B, S] per batch: which positions read the decode sources.
            policy: how full layers select; default: as the model was trained.
        """
        self.schedule: ReuseSchedule | None = None
        self.layer_runs = 0
        self._model, self._batches, self._rows = model, tuple(batches), tuple(decode_rows)
        self._policy = policy
        self._layers = tuple(cast(nn.ModuleList, indexer_sites(model).root.layers))
        self._outputs: list[dict[int, LayerOutput]] = [{} for _ in batches]
        self._selections: list[dict[int, Tensor]] = [{} for _ in batches]

    def __len__(self) -> int:
        return len(self._layers)

    def commit(
        self, schedule: ReuseSchedule, *, start: int | None = None, only: int | None = None
    ) -> None:
        """Cache the activations under a schedule, from the first layer that it changes on.

        Args:
            schedule: becomes the committed one.
            start: absolute id of the first layer that changes, where it is not the schedule that
                makes the difference (other indexers stand in the model).
            only: cache the output of this layer alone, drop the others and stop after it.
        """
        if start is None:
            start = 0 if self.schedule is None else self.first_change(schedule)
        if start is None or (only is not None and only < 0):
            self.schedule = schedule
            return
        for number in range(len(self._batches)):
            self._forward(schedule, number, start, keep=True, only=only)
            if only is not None:
                outputs = self._outputs[number]
                self._outputs[number] = {k: v for k, v in outputs.items() if k == only}
        self.schedule = schedule

    def final_hidden_states(
        self, schedule: ReuseSchedule, number: int, *, start: int | None = None
    ) -> Tensor:
        """Final hidden states [B, S, hidden] of a batch under a schedule near the committed one.

        `start`, as in `commit`, says where the difference begins if it is not the schedule's.
        """
        if self.schedule is None:
            raise ValueError("commit a schedule first")
        if start is None:
            start = self.first_change(schedule)
        return self._forward(schedule, number, len(self._layers) if start is None else start)

    def first_change(self, schedule: ReuseSchedule) -> int | None:
        """Absolute id of the first layer that does something else than now; None: there is none."""
        if self.schedule is None:
            return 0
        before, after = _by_layer(self.schedule), _by_layer(schedule)
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
        cached = {f: s for f, s in self._selections[number].items() if ids[f] < start}
        selections = dict(cached)

        def observe(ordinal: int, call: IndexerCall, chosen: Tensor | None) -> None:
            require_finite_call(ids[ordinal], call)
            if keep and chosen is not None:
                selections[ordinal] = chosen.int()

        skipping = _layers_skipped(self._layers[:start], outputs.get(start - 1))
        caching = _outputs_cached(self._layers, start, outputs if keep else None, only)
        under = apply_schedule(
            self._model, schedule, policy=self._policy, chunked=True, sparse=True, observe=observe
        )
        with under as applied, skipping, caching:
            applied.given, applied.decode_rows = cached, self._rows[number]
            final = batch.ids.new_empty(0)
            with suppress(ForwardStoppedError):
                final = self._model.get_decoder()(batch.ids, use_cache=False).last_hidden_state
                require_finite(final, "hidden states after the last layer")
        self.layer_runs += (len(self._layers) if only is None else only + 1) - start
        if keep:
            self._selections[number] = selections
        return final


def _by_layer(schedule: ReuseSchedule) -> list[tuple[bool, int, int]]:
    """Whether a layer computes, and its sources in both phases."""
    sources = schedule.sources("prefill"), schedule.sources("decode")
    return list(zip(schedule.computes, *sources, strict=True))


@contextmanager
def _layers_skipped(layers: Sequence[nn.Module], output: LayerOutput | None) -> Iterator[None]:
    """Some layers return what the last of them returned before, and compute nothing."""
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(override_forward(layer, lambda *_, **__: output))
        yield


@contextmanager
def _outputs_cached(
    layers: Sequence[nn.Module],
    start: int,
    into: dict[int, LayerOutput] | None,
    only: int | None,
) -> Iterator[None]:
    """Cache what the layers from `start` on return; or what one returns, and stop after it."""
    with ExitStack() as stack:
        if into is not None:
            for number in range(start, len(layers)) if only is None else (only,):

                def remember(
                    _: nn.Module, __: object, output: LayerOutput, number: int = number
                ) -> None:
                    into[number] = output
                    if only is not None:
                        raise ForwardStoppedError

                stack.callback(layers[number].register_forward_hook(remember).remove)
        yield
