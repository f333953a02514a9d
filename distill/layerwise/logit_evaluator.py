"""Final logits without the whole model in memory: one more pass over the layers.

To compare states of one full layer's indexer, the arm goes on from that layer to the last with each
of them, all through one layer before the next is opened. What they are compared with, the original
and the undistilled arm, goes from the first layer to the last once.

    final/original/…, final/plain/…     streams, whose ends are kept; final/latest/… too where
                                        positions count by what the latest keys alone miss
    try/<state>/…                       a stream per state, gone at its end
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.layerwise.hidden_states import HiddenStateStream
from distill.layerwise.setup import LayerwiseSetup
from distill.models.student import State
from distill.validation.logit_kl import Criterion, divergence

LogitMetrics = dict[str, float]


class LogitEvaluator:
    """Compares states of indexers by the KL of final logits to the original's.

    Attributes:
        at: layer that the original and the undistilled arm stand before.
    """

    def __init__(self, setup: LayerwiseSetup, arm: HiddenStateStream, at: int = 0) -> None:
        self.at = at
        self._setup, self._arm = setup, arm
        self._end = len(setup.layers)
        native = setup.layers.layout.native
        self._original = HiddenStateStream(setup, "final/original", native)
        self._undistilled = replace(arm, name="final/plain", states={})
        self._latest = HiddenStateStream(setup, "final/latest", native, latest=True)
        self._known: dict[tuple[str, str], Tensor] = {}  # by stream and split, at every position

    def prepare(self, on_layer: Callable[[], None]) -> None:
        """Run what is compared with to the end; `on_layer` is called after each layer."""
        setup, streams = self._setup, [self._original, self._undistilled]
        if not setup.compared:
            return
        if setup.config.choice.positions == "far":
            streams.append(self._latest)
        if self.at == 0:
            embedding = setup.layers.embed()
            for stream in streams:
                stream.embed(setup.compared, embedding)
        while self.at < self._end:
            number = self.at
            layer = setup.layers.open(number)
            for stream in streams:
                stream.advance(layer, setup.compared)
            del layer
            self.at = number + 1
            on_layer()
            for stream in streams:
                stream.discard(number)

    def undistilled(self, split: str) -> LogitMetrics:
        """The arm before anything trained; see `compare`."""
        return self._metrics(self._divergence_of(self._undistilled, split), split)

    def compare(self, layer: int, states: Sequence[State], split: str) -> list[LogitMetrics]:
        """Per state of a full layer's indexer: ``logit_kl`` (mean over positions) and
        ``logit_kl_tail`` (positions weighted as `choice` says), on one split of the text.

        The arm must stand before the layer, with the indexers that trained so far in it.
        """
        setup, branch = self._setup, replace(self._arm, parent=self._arm, start=layer)
        streams = [
            replace(branch, name=f"try/{i}", states={layer: state})
            for i, state in enumerate(states)
        ]
        batches = self._batches(split)
        for number in range(layer, self._end):
            opened = setup.layers.open(number)
            for stream in streams:
                stream.advance(opened, batches)
                stream.discard(number)
            del opened
        divergences = self._divergences(streams, split)
        for stream in streams:
            stream.discard_all()
        return [self._metrics(kl, split) for kl in divergences]

    def _batches(self, split: str) -> dict[str, Batch]:
        return {n: b for n, b in self._setup.compared.items() if n.startswith(f"{split}/")}

    def _divergence_of(self, stream: HiddenStateStream, split: str) -> Tensor:
        """Of a stream that has gone to the end: computed once."""
        key = stream.name, split
        if key not in self._known:
            (self._known[key],) = self._divergences([stream], split)
        return self._known[key]

    def _divergences(self, streams: Sequence[HiddenStateStream], split: str) -> list[Tensor]:
        """Per stream, at every valid position of a split, fp32 [positions]."""
        norm, head = self._setup.layers.norm_and_head(self._setup.model)
        parts: list[list[Tensor]] = [[] for _ in streams]
        for name, batch in self._batches(split).items():
            valid = batch.valid.to(self._setup.device)
            with torch.no_grad():
                before = norm(self._original.hidden(self._end, name))[valid]
                for stream, values in zip(streams, parts, strict=True):
                    after = norm(stream.hidden(self._end, name))[valid]
                    values.append(divergence(head, before, after))
        return [torch.cat(values) for values in parts]

    def _metrics(self, kl: Tensor, split: str) -> LogitMetrics:
        choice = self._setup.config.choice
        gain = self._divergence_of(self._latest, split) if choice.positions == "far" else None
        criterion = Criterion.of(self._divergence_of(self._undistilled, split), choice.tail, gain)
        return {"logit_kl": float(kl.mean()), "logit_kl_tail": criterion(kl)}
