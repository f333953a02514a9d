"""The reference dumper: a transformers model runs once, and what its indexers read is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from distill.data.batch import Batch
from distill.layerwise.dump import DumpWriter, IndexerInputs
from distill.layerwise.setup import LayerwiseSetup
from distill.models.causal_lm import CausalLM
from distill.models.forward import visit_indexer_calls
from evalkit.dsa import IndexerCall


def dump_model(
    setup: LayerwiseSetup, model: CausalLM, out: Path, on_batch: Callable[[], None]
) -> None:
    """Write a dump of the recipe's text, at the layers that train or teach.

    Args:
        setup: its text, and which layers.
        model: with its weights.
        out: directory of the dump.
        on_batch: called after every batch.

    Raises:
        DistillError: there is a dump already, or the disk is full.
        NonFiniteError: hidden states are NaN or infinite; names the layer.
    """
    writer = DumpWriter(out, setup.base, setup.data.sha256)
    ids, native = setup.schedule.layer_ids, setup.layers.layout.native
    for name, batch in setup.batches.items():

        def visit(layer: int, call: IndexerCall, name: str = name, batch: Batch = batch) -> None:
            sequences = {}
            for i, sequence in enumerate(setup.sequences(name)):
                real, latent = batch.valid[i], call.q_resid
                sequences[sequence] = IndexerInputs(
                    batch.ids[i][real],
                    call.hidden[i][real],
                    None if latent is None else latent[i][real],
                )
            writer.add(ids[layer], sequences)

        placed = batch.to(setup.device)
        visit_indexer_calls(model, native, placed, visit, layers=setup.layers_read)
        on_batch()
    writer.finish()
