"""Two streams of hidden states that go through the layers together: the original's and the arm's.

The original runs ahead as far as the teachers of the next full layer lie, and leaves what they say
on the shelf; the arm's follows up to that layer, whose indexer is then trained on its own input.
Each layer is opened once per stream (once in all where states are off-policy).

    original/<layer>/<batch>       hidden states in front of a layer
    arm/<layer>/<batch>            the same under the schedule, trained indexers acting
    input/<layer>/<batch>          attention-block input and query latent of a full layer
    teach/<layer>/…                keys, queries at the drawn rows, inputs on calibration text
    chosen/<stream>/<layer>/<batch>  selections that later layers read
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from distill.capture import Batch
from distill.layerwise.job import PHASES, Job
from distill.layerwise.layers import Layer
from distill.rows import RowGroup, boundaries, decode_mask
from evalkit.dsa import IndexerCall, IndexFeatures, ReuseSchedule, select

LOOKED_AT = ("held_out", "calibration")


class _EnoughError(Exception):
    """Nothing behind the indexer of this layer is needed."""


class Streams:
    """Hidden states on the shelf, and how far they are.

    Attributes:
        original_at: layer that the original's states stand in front of.
        arm_at: the same of the arm's.
    """

    def __init__(self, job: Job, original_at: int = 0, arm_at: int = 0) -> None:
        self.original_at, self.arm_at = original_at, arm_at
        self._job, self._shelf = job, job.shelf
        self._last = max(max(job.teachers(f)) for f in job.trained)

    def begin(self) -> None:
        """Embed the text."""
        embedding = self._job.layers.embed()
        for name, batch in self._job.batches.items():
            hidden = embedding(batch.ids.to(self._job.device))
            self._shelf.put(f"original/0/{name}", hidden=hidden)
            if self._job.plan.on_policy:
                self._shelf.put(f"arm/0/{name}", hidden=hidden)

    # -- the original -----------------------------------------------------------------------------

    def original_to(self, last: int, on_layer: Callable[[], None]) -> None:
        """Run the original through layer `last`; `on_layer` is called behind every layer."""
        while self.original_at <= last:
            number = self.original_at
            layer = self._job.layers.open(number)
            for name, batch in self._job.batches.items():
                self._original(layer, name, batch)
            del layer
            self.original_at = number + 1
            on_layer()
            self._shelf.drop(f"original/{number}")

    def _original(self, layer: Layer, name: str, batch: Batch) -> None:
        number, native = layer.number, self._job.layers.layout.native

        def answer(call: IndexerCall) -> Tensor:
            if number in self._job.trained and not self._job.plan.on_policy:
                self._keep_input(number, name, call)
            if self._job.taught_by(number):
                self._teach(layer, name, batch, call)
            if number == self._last:
                raise _EnoughError
            return self._selection(layer, layer.indexer, call, native, name, "native", None)

        self._advance(layer, f"original/{number}/{name}", f"original/{number + 1}/{name}", answer)

    def _teach(self, layer: Layer, name: str, batch: Batch, call: IndexerCall) -> None:
        """What a teacher says about this batch, linear in the length."""
        job, root = self._job, f"teach/{layer.number}"
        split = name.partition("/")[0]

        def features(rows: Tensor) -> IndexFeatures:
            found: IndexFeatures = layer.where.family.features(  # type: ignore[misc]
                layer.indexer, call, rows.to(call.hidden.device)
            )
            return found

        if split == "calibration":
            self._shelf.put(f"{root}/call/{name}", hidden=call.hidden, q_resid=call.q_resid)
        if split in LOOKED_AT:
            for group in looked_at(job, batch):
                said = features(group.rows)
                self._put_rows(f"{root}/look/{name}/{group.phase}", said)
            self._shelf.put(f"{root}/keys/{name}", key=said.key)
            return
        first = int(name.partition("/")[2]) * job.config.train.micro_batch
        draws = [job.draws_of.get(first + i, []) for i in range(len(batch.ids))]
        for turn in range(max(map(len, draws))):  # sequences that are drawn again: once per turn
            some = [(i, d[turn]) for i, d in enumerate(draws) if turn < len(d)]
            for group, order in drawn(job, batch, some):
                said = features(group.rows)
                for i, draw in order:
                    self._put_rows(f"{root}/draw/{draw}/{group.phase}", said, i)
        self._shelf.put(f"{root}/keys/{name}", key=said.key)

    def _put_rows(self, name: str, said: IndexFeatures, row: int | None = None) -> None:
        part = slice(None) if row is None else slice(row, row + 1)
        self._shelf.put(name, query=said.query[part], weight=said.weight[part])

    # -- the arm ----------------------------------------------------------------------------------

    def arm_to(
        self, layer: int, states: Mapping[int, dict[str, Tensor]], on_layer: Callable[[], None]
    ) -> None:
        """Run the arm up to, not through, a layer, with trained indexers (ordinal to state)."""
        while self.arm_at < layer:
            number = self.arm_at
            opened = self._job.layers.open(number)
            indexer = acting(opened.indexer, states.get(number))
            for name, batch in self._job.batches.items():
                self._arm(opened, indexer, name, batch)
            del opened, indexer
            self.arm_at = number + 1
            on_layer()
            self._shelf.drop(f"arm/{number}")
            for source in self._job.schedule.full_layers:
                if self._last_reader(source) <= number:
                    self._shelf.drop(f"chosen/arm/{source}")

    def keep_inputs(self, number: int) -> None:
        """The arm's inputs of the layer it stands in front of."""
        opened = self._job.layers.open(number)
        for name in self._job.batches:

            def answer(call: IndexerCall, name: str = name) -> Tensor:
                self._keep_input(number, name, call)
                raise _EnoughError

            self._advance(opened, f"arm/{number}/{name}", "", answer)

    def _arm(self, layer: Layer, indexer: Any, name: str, batch: Batch) -> None:
        rows = None
        if self._job.plan.prompts(batch, range(len(batch.ids))) is not None:
            numbers = range(batch.first, batch.first + len(batch.ids))
            plan = self._job.plan
            ends = boundaries(batch.valid, numbers, first=plan.first, seed=plan.seed)
            rows = decode_mask(ends, batch.ids.shape[1]).to(self._job.device)

        def answer(call: IndexerCall) -> Tensor:
            return self._selection(layer, indexer, call, self._job.schedule, name, "arm", rows)

        number = layer.number
        self._advance(layer, f"arm/{number}/{name}", f"arm/{number + 1}/{name}", answer)

    def _last_reader(self, source: int) -> int:
        return max(
            max(self._job.schedule.consumers(source, phase), default=source) for phase in PHASES
        )

    # -- both -------------------------------------------------------------------------------------

    def _advance(
        self, layer: Layer, before: str, behind: str, answer: Callable[[IndexerCall], Tensor]
    ) -> None:
        hidden = self._shelf.get(before, self._job.device)["hidden"]
        try:
            hidden = layer.run(hidden, answer)
        except _EnoughError:
            return
        self._shelf.put(behind, hidden=hidden)

    def _keep_input(self, number: int, name: str, call: IndexerCall) -> None:
        self._shelf.put(f"input/{number}/{name}", hidden=call.hidden, q_resid=call.q_resid)
        if call.rope is not None and f"rope/{name}" not in self._shelf:
            self._shelf.put(f"rope/{name}", cos=call.rope[0][:1], sin=call.rope[1][:1])

    def _selection(
        self, layer: Layer, indexer: Any, call: IndexerCall, schedule: ReuseSchedule, name: str,
        stream: str, rows: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """What a layer attends to under a schedule; its own selection is kept for later readers."""
        number, own = layer.number, None
        if schedule.computes[number]:
            features: Any = layer.where.family.features
            own = select(features(indexer, call), indexer.index_topk)
            if any(i > number for p in PHASES for i in schedule.consumers(number, p)):
                self._shelf.put(f"chosen/{stream}/{number}/{name}", chosen=own.int())

        def of(source: int) -> Tensor:
            if source == number and own is not None:
                return own
            name_of = f"chosen/{stream}/{source}/{name}"
            return self._shelf.get(name_of, call.hidden.device)["chosen"].long()

        sources = [schedule.sources(phase)[number] for phase in PHASES]
        if rows is None or sources[0] == sources[1]:
            return of(sources[0])
        return torch.where(rows.unsqueeze(-1), of(sources[1]), of(sources[0]))


def acting(indexer: Any, state: Mapping[str, Tensor] | None) -> Any:
    """An indexer with trained tensors, in the model's own precision."""
    if state is None:
        return indexer
    module = copy.deepcopy(indexer)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(state[name].to(parameter.dtype))
    return module


def looked_at(job: Job, batch: Batch) -> list[RowGroup]:
    """Rows of held-out and calibration text, as the probes draw them."""
    draws = range(batch.first, batch.first + len(batch.ids))
    return job.plan.groups(batch, draws, job.plan.prompts(batch, draws))


def drawn(
    job: Job, batch: Batch, some: list[tuple[int, int]]
) -> list[tuple[RowGroup, list[tuple[int, int]]]]:
    """Row groups over a whole batch for (row, draw) pairs; other rows repeat the first pair."""
    every = [some[0][1]] * len(batch.ids)
    for i, draw in some:
        every[i] = draw
    prompts = job.prompts(batch, every)
    return [(group, some) for group in job.plan.groups(batch, every, prompts)]
