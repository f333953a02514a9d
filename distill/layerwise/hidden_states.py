"""Hidden states on their way through the layers under a schedule; both lie on the shelf.

<course>/<layer>/<batch>          hidden states in front of a layer
chosen/<course>/<layer>/<batch>   selections that later layers read
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.layerwise.layer_loader import Layer
from distill.layerwise.setup import PHASES, Job
from distill.objective.plan import decode_rows
from evalkit.dsa import IndexerCall, ReuseSchedule, select

State = Mapping[str, Tensor]


class _EnoughError(Exception):
    """Nothing behind the indexer of this layer is needed."""


@dataclass(frozen=True, slots=True)
class Course:
    """One such journey.

    Attributes:
        job: text, shelf, layers.
        name: on the shelf.
        schedule: who reads whose selection.
        states: tensors of the indexers that are not the checkpoint's, by ordinal.
        parent: the course that this one left.
        start: layer in front of which it left it.
    """

    job: Job
    name: str
    schedule: ReuseSchedule
    states: Mapping[int, State] = field(default_factory=dict)
    parent: Course | None = None
    start: int = 0

    def through(
        self, layer: Layer, batches: Mapping[str, Batch],
        visit: Callable[[str, IndexerCall], None] = lambda *_: None, *, stop: bool = False,
    ) -> None:  # fmt: skip
        """Take some batches through a layer.

        Args:
            layer: the one that they stand in front of.
            batches: by name.
            visit: called with every batch's name and what the layer asks its indexer.
            stop: end there; what lies behind is not needed.
        """
        number = layer.number
        indexer = _acting(layer.indexer, self.states.get(number))
        for name, batch in batches.items():

            def answer(call: IndexerCall, name: str = name, batch: Batch = batch) -> Tensor:
                visit(name, call)
                if stop:
                    raise _EnoughError
                return self._selection(layer, indexer, call, name, batch)

            try:
                behind = layer.run(self.hidden(number, name), answer)
            except _EnoughError:
                continue
            self.job.shelf.put(f"{self.name}/{number + 1}/{name}", hidden=behind)

    def begin(self, batches: Mapping[str, Batch], embedding: Callable[[Tensor], Tensor]) -> None:
        """Put some batches in front of the first layer."""
        for name, batch in batches.items():
            hidden = embedding(batch.ids.to(self.job.device))
            self.job.shelf.put(f"{self.name}/0/{name}", hidden=hidden)

    def hidden(self, number: int, name: str) -> Tensor:
        """[B, S, hidden] of a batch in front of a layer."""
        if self.parent is not None and number <= self.start:
            return self.parent.hidden(number, name)
        return self.job.shelf.get(f"{self.name}/{number}/{name}", self.job.device)["hidden"]

    def leave(self, number: int) -> None:
        """Forget the states in front of a layer, and selections that no layer behind it reads."""
        shelf = self.job.shelf
        shelf.drop(f"{self.name}/{number}")
        for source, full in enumerate(self.schedule.computes):
            if full and self._last_reader(source) <= number:
                shelf.drop(f"chosen/{self.name}/{source}")

    def end(self) -> None:
        """Forget everything."""
        self.job.shelf.drop(self.name)
        self.job.shelf.drop(f"chosen/{self.name}")

    def _last_reader(self, source: int) -> int:
        readers = (self.schedule.consumers(source, phase) for phase in PHASES)
        return max(max(some, default=source) for some in readers)

    def _selection(
        self, layer: Layer, indexer: Any, call: IndexerCall, name: str, batch: Batch
    ) -> Tensor:
        """What a layer attends to; its own selection is kept for later readers."""
        number, own = layer.number, None
        if self.schedule.computes[number]:
            features = layer.where.features
            own = select(features(indexer, call), indexer.index_topk)
            if self._last_reader(number) > number:
                self.job.shelf.put(f"chosen/{self.name}/{number}/{name}", chosen=own.int())

        def of(source: int) -> Tensor:
            return own if source == number and own is not None else self._chosen(source, name)

        prefill, decode = (self.schedule.sources(phase)[number] for phase in PHASES)
        rows = None if prefill == decode else decode_rows(self.job.plan, batch)
        if rows is None:
            return of(prefill)
        return torch.where(rows.to(self.job.device).unsqueeze(-1), of(decode), of(prefill))

    def _chosen(self, source: int, name: str) -> Tensor:
        if self.parent is not None and source < self.start:
            return self.parent._chosen(source, name)
        found = self.job.shelf.get(f"chosen/{self.name}/{source}/{name}", self.job.device)
        return found["chosen"].long()


def _acting(indexer: Any, state: State | None) -> Any:
    """An indexer with trained tensors, in the model's own precision."""
    if state is None:
        return indexer
    module = copy.deepcopy(indexer)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(state[name].to(parameter.dtype))
    return module
