"""The original's hidden states out of a dump: no layer runs here, indexers alone are loaded."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from distill.data.batch import Batch
from distill.layerwise.dump import Dump
from distill.layerwise.setup import LayerwiseSetup
from distill.layerwise.streams import Streams
from distill.models.forward import require_finite_call
from evalkit.dsa import IndexerCall


def streams_of(setup: LayerwiseSetup, original_at: int = 0, arm_at: int = 0) -> Streams:
    """The streams of a setup: layers that run here, or a dump."""
    if setup.dump is None:
        return Streams(setup, original_at, arm_at)
    return DumpedStreams(setup, setup.dump, original_at, arm_at)


class DumpedStreams(Streams):
    """`Streams` that read the original's indexer calls; there are no states of the arm."""

    def __init__(
        self, setup: LayerwiseSetup, dump: Dump, original_at: int = 0, arm_at: int = 0
    ) -> None:
        super().__init__(setup, original_at, arm_at)
        self._dump = dump

    def begin(self) -> None:
        """Nothing to embed."""

    def original_to(self, last: int, on_layer: Callable[[], None]) -> None:
        """Read the original's calls up to layer `last`."""
        setup = self._setup
        while self.original_at <= last:
            number, indexer = self.original_at, nn.Module()
            if setup.taught_by(number):
                indexer = setup.layers.indexer(number, setup.model)
            for name, batch in setup.batches.items() if number in setup.layers_read else ():
                call = self._call(number, name, batch)
                require_finite_call(setup.schedule.layer_ids[number], call)
                self._visit(number, indexer, name, call)
            self.original_at = number + 1
            on_layer()

    def arm_to(self, layer: int, on_layer: Callable[[], None]) -> None:
        """The arm does not run."""
        self.arm_at = layer
        on_layer()

    def keep_inputs(self, number: int) -> None:
        """They were kept when the original was read."""

    def _call(self, number: int, name: str, batch: Batch) -> IndexerCall:
        """A batch's indexer call, zeros at padding: causality keeps it out of sight."""
        setup, layer = self._setup, self._setup.schedule.layer_ids[number]
        read = [
            self._dump.read(layer, sequence, batch.ids[i][batch.valid[i]], setup.device)
            for i, sequence in enumerate(setup.sequences(name))
        ]

        def padded(parts: list[Tensor]) -> Tensor:
            return pad_sequence(parts, batch_first=True)

        latents = [inputs.q_latent for inputs in read if inputs.q_latent is not None]
        length = batch.ids.shape[1]
        return IndexerCall(
            hidden=padded([inputs.hidden for inputs in read]),
            q_resid=padded(latents) if latents else None,
            rope=setup.layers.rope(length, setup.model),
            mask=None,
            position_ids=torch.arange(length, device=setup.device)[None],
            cache=None,
            layer_id=layer,
        )
