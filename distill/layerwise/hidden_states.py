"""Activation streaming with disk offload: hidden states on their way through the layers.

<stream>/<layer>/<batch>          hidden states before a layer
chosen/<stream>/<layer>/<batch>   selections that later layers read
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from distill.data.batch import Batch
from distill.errors import require_finite
from distill.layerwise.layer_loader import Layer
from distill.layerwise.setup import LayerwiseSetup
from distill.models.early_exit import ForwardStoppedError
from distill.models.forward import require_finite_call
from distill.models.student import State
from distill.objective.query_sampling import PHASES
from distill.validation.long_range import latest_keys
from evalkit.dsa import IndexerCall, ReuseSchedule, select
from evalkit.dsa.families.sites import topk_of
from evalkit.dsa.selection import SelectionPolicy


@dataclass(frozen=True, slots=True)
class HiddenStateStream:
    """Hidden states of some batches under one schedule.

    Attributes:
        setup: text, store, layers.
        name: in the store.
        schedule: who reads whose selection.
        states: tensors of the indexers that are not the checkpoint's, by ordinal.
        parent: the stream that this one branched off from.
        start: layer before which it branched off.
        latest: every full layer selects the latest keys only (`distill.validation.long_range`).
        policy: how full layers select; None: as the model was trained.
    """

    setup: LayerwiseSetup
    name: str
    schedule: ReuseSchedule
    states: Mapping[int, State] = field(default_factory=dict)
    parent: HiddenStateStream | None = None
    start: int = 0
    latest: bool = False
    policy: SelectionPolicy | None = None

    def embed(self, batches: Mapping[str, Batch], embedding: Callable[[Tensor], Tensor]) -> None:
        """Put some batches before the first layer."""
        for name, batch in batches.items():
            hidden = embedding(batch.ids.to(self.setup.device))
            self.setup.store.put(f"{self.name}/0/{name}", hidden=hidden)

    def advance(
        self,
        layer: Layer,
        batches: Mapping[str, Batch],
        visit: Callable[[str, IndexerCall], None] = lambda *_: None,
        *,
        visit_only: bool = False,
    ) -> None:
        """Take some batches through the layer that they stand before.

        Args:
            layer: that layer.
            batches: by name.
            visit: called with every batch's name and indexer call.
            visit_only: stop there; what comes after is not needed.

        Raises:
            NonFiniteError: hidden states are NaN or infinite; names the layer.
        """
        indexer = _with_state(layer.indexer, self.states.get(layer.number))
        for name, batch in batches.items():

            def answer(call: IndexerCall, name: str = name, batch: Batch = batch) -> Tensor:
                require_finite_call(layer.number, call)
                visit(name, call)
                if visit_only:
                    raise ForwardStoppedError
                return self._selection(layer, indexer, call, name, batch)

            with suppress(ForwardStoppedError):
                after = layer.run(self.hidden(layer.number, name), answer)
                require_finite(after, f"layer {layer.number}: hidden states after it")
                self.setup.store.put(f"{self.name}/{layer.number + 1}/{name}", hidden=after)

    def hidden(self, number: int, name: str) -> Tensor:
        """[B, S, hidden] of a batch before a layer."""
        if self.parent is not None and number <= self.start:
            return self.parent.hidden(number, name)
        return self.setup.store.get(f"{self.name}/{number}/{name}", self.setup.device)["hidden"]

    def discard(self, number: int) -> None:
        """Drop the states before a layer, and selections that no later layer reads."""
        store = self.setup.store
        store.drop(f"{self.name}/{number}")
        for source, full in enumerate(self.schedule.computes):
            if full and self._last_reader(source) <= number:
                store.drop(f"chosen/{self.name}/{source}")

    def discard_all(self) -> None:
        """Drop everything."""
        self.setup.store.drop(self.name)
        self.setup.store.drop(f"chosen/{self.name}")

    def selection_of(self, source: int, name: str) -> Tensor:
        """The stored selection of a full layer for a batch: int64 [B, S, topk]."""
        if self.parent is not None and source < self.start:
            return self.parent.selection_of(source, name)
        stored = self.setup.store.get(f"chosen/{self.name}/{source}/{name}", self.setup.device)
        return stored["chosen"].long()

    def _last_reader(self, source: int) -> int:
        readers = (self.schedule.consumers(source, phase) for phase in PHASES)
        return max(max(each, default=source) for each in readers)

    def _selection(
        self, layer: Layer, indexer: nn.Module, call: IndexerCall, name: str, batch: Batch
    ) -> Tensor:
        """What a layer attends to; its own selection is kept for later readers."""
        number, selected = layer.number, None
        if self.schedule.computes[number]:
            if self.latest:
                positions = torch.arange(call.hidden.shape[1], device=call.hidden.device)
                ratio = self.setup.layers.layout.ratio
                keys = latest_keys(positions, ratio, topk_of(indexer))
                selected = keys.expand(len(batch.ids), -1, -1)
            else:
                features = self.setup.layers.features(indexer, call)
                selected = select(features, topk_of(indexer), policy=self.policy)
            if self._last_reader(number) > number:
                self.setup.store.put(f"chosen/{self.name}/{number}/{name}", chosen=selected.int())

        def of(source: int) -> Tensor:
            return (
                selected
                if source == number and selected is not None
                else self.selection_of(source, name)
            )

        prefill, decode = (self.schedule.sources(phase)[number] for phase in PHASES)
        rows = None if prefill == decode else self.setup.plan.decode_rows(batch)
        if rows is None:
            return of(prefill)
        late = rows.to(self.setup.device).unsqueeze(-1)
        return torch.where(late, of(decode), of(prefill))


def _with_state(indexer: nn.Module, state: State | None) -> nn.Module:
    """An indexer with trained tensors, in the model's own precision."""
    if state is None:
        return indexer
    module = copy.deepcopy(indexer)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(state[name].to(parameter.dtype))
            require_finite(parameter, f"{name} of the student as {parameter.dtype}")
    return module
