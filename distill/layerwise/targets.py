"""The consumers' merged targets as files, for trainers that hold models which `distill` does not.

    targets.json                 model, text, arm, losses, hash of every file; written last
    data/                        the text, as `distill data` packs it
    <layer>/<split>-<n>-<phase>.safetensors    B sequences at one full layer (its id):
        sequence     int64 [B]          number in the split
        positions    int32 [B, R]       query positions, rising
        weight       fp32 [B, R]        1; 0 where a sequence has fewer than R
        keys         int32 [B, R, M]    key positions by falling probability, -1 where there is none
        probability  fp32 [B, R, M]     p̄ of these keys, the mean of the consumers' distributions
        rest         fp32 [B, R]        mass of p̄ on all other keys
        information  fp32 [B, R]        mean over consumers of Σ p log p, in nats
        order        int32 [C, B, R, m] each consumer's m best keys, best first (losses on lists)

A distribution is the softmax of the consumer's index scores at the model's own scale over all keys
that the query may see. With every key kept (M = S) nothing is lost: the mean over consumers of
KL(p_c ‖ q) is information − Σ probability · log q[keys].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import pad

from distill.errors import DistillError, at
from distill.layerwise.batches import evaluation_groups, training_groups
from distill.layerwise.dumped_streams import streams_of
from distill.layerwise.setup import LayerwiseSetup
from distill.layerwise.tensor_store import TensorStore
from distill.models.indexers import indexer_at, scale_of
from distill.objective.loss import WeightedMean, chunks
from distill.objective.query_sampling import PHASES, QueryGroup
from distill.objective.teachers import IndexTeacher, consumer_targets, slice_queries
from evalkit.core.files import write_atomic
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.files import file_sha256
from evalkit.dsa.scores import visible

MANIFEST, FORMAT = "targets.json", 1
KEPT = 4  # keys per query by default, in multiples of index_topk


@dataclass(slots=True)
class Exported:
    """What was written.

    Attributes:
        files: their hashes by path, relative to the directory.
        mass: share of p̄ that lies on the kept keys, over queries.
        least: the same of the worst query.
    """

    files: dict[str, str] = field(default_factory=dict)
    mass: WeightedMean = field(default_factory=WeightedMean)
    least: float = 1.0


def export_targets(
    setup: LayerwiseSetup,
    out: Path,
    keys: int | None = None,
    on_layer: Callable[[], None] = lambda: None,
) -> Exported:
    """Write the targets of every full layer that trains.

    Args:
        setup: its text, arm and losses; the original runs layer by layer, or comes from a dump.
        out: the directory.
        keys: kept per query, M; default: `KEPT` × index_topk.
        on_layer: called after every layer of the original.

    Raises:
        DistillError: there are targets already, or the disk is full.
        NonFiniteError: hidden states or scores are NaN or infinite; names the layer.
    """
    if (out / MANIFEST).exists():
        raise DistillError(f"{out}: holds targets already; use another --out, or remove it")
    kept = keys or KEPT * setup.plan.objective.topk
    setup.store.drop("")
    streams, files, result = streams_of(setup), TensorStore(out), Exported()
    streams.begin()
    for layer in setup.trained:
        streams.original_to(max(setup.teachers(layer)), on_layer)
        number = setup.schedule.layer_ids[layer]
        for name, sequences, group, teachers in _groups(setup, layer):
            with at(f"layer {number}"):
                tensors = merged_targets(setup, group, teachers, kept)
            _count(tensors, result)
            path = f"{number}/{name}-{group.phase}"
            files.put(path, sequence=torch.tensor(sequences), **tensors)
            file = f"{path}.safetensors"
            result.files[file] = file_sha256(out / file)
        later = (setup.teachers(f) for f in setup.trained if f > layer)
        for teacher in setup.teachers(layer).difference(*later):
            setup.store.drop(f"teach/{teacher}")
    setup.store.drop("")
    write_atomic(out / MANIFEST, json.dumps(_manifest(setup, kept, result), indent=1) + "\n")
    return result


def merged_targets(
    setup: LayerwiseSetup, group: QueryGroup, teachers: Sequence[IndexTeacher], kept: int
) -> dict[str, Tensor]:
    """One file's tensors but `sequence`, as this module describes them.

    Args:
        setup: see `export_targets`.
        group: query positions of some sequences.
        teachers: their consumers.
        kept: keys per query, at most.
    """
    objective, features = setup.plan.objective.trained(), teachers[0].features
    kept, needs = min(kept, features.key.shape[1]), objective.needs(objective.topk)
    parts: dict[str, list[Tensor]] = {}
    for part, seen in chunks(features, objective.chunk_elements):
        chunk = slice_queries(features, part, seen)
        support = visible(chunk, chunk.positions)
        merged = consumer_targets(teachers, part, support, needs, objective.combine)
        if merged.mean.dim():
            best = merged.mean.topk(min(kept, seen))
            missing = (0, kept - best.values.shape[-1])
            places = best.indices.masked_fill(best.values == 0, -1)
            parts.setdefault("keys", []).append(pad(places, missing, value=-1))
            parts.setdefault("probability", []).append(pad(best.values, missing))
            left = merged.mean.sum(-1) - best.values.sum(-1)
            parts.setdefault("rest", []).append(left.clamp(min=0))
            parts.setdefault("information", []).append(merged.information)
        if merged.orders:
            orders = torch.stack(merged.orders)
            missing = (0, min(needs.order, features.key.shape[1]) - orders.shape[-1])
            parts.setdefault("order", []).append(pad(orders, missing, value=-1))
    merged_parts = {k: torch.cat(v, dim=2 if k == "order" else 1) for k, v in parts.items()}
    whole = {"positions": group.positions, "weight": group.weight} | merged_parts
    return {k: t if t.is_floating_point() else t.int() for k, t in whole.items()}


def _groups(
    setup: LayerwiseSetup, layer: int
) -> Iterator[tuple[str, list[int], QueryGroup, list[IndexTeacher]]]:
    """(name, sequence numbers, queries, teachers): of training draws, then of held-out text."""
    indexer = indexer_at(indexer_sites(setup.model), layer)
    scale, size = scale_of(indexer), setup.config.train.micro_batch
    for first in range(0, len(setup.numbers), size):
        draws = range(first, min(first + size, len(setup.numbers)))
        numbers = [setup.numbers[draw] for draw in draws]
        for group, teachers in training_groups(setup, layer, draws, scale):
            yield f"train-{first // size}", numbers, group, teachers
    for name, batch in setup.split("held_out").items():
        for group, teachers in evaluation_groups(setup, layer, name, batch, scale):
            yield name.replace("/", "-"), list(batch.own_draws), group, teachers


def _count(tensors: dict[str, Tensor], result: Exported) -> None:
    if "rest" in tensors:
        real = tensors["weight"] > 0
        mass = 1 - tensors["rest"].cpu()[real]
        result.mass.add(float(mass.sum()), len(mass))
        result.least = min([result.least, *mass.tolist()])


def _manifest(setup: LayerwiseSetup, kept: int, result: Exported) -> dict[str, object]:
    ids, assignment = setup.schedule.layer_ids, setup.plan.assignment
    consumers = {
        ids[layer]: {
            phase: [ids[c] for c in assignment.consumers[phase, layer]] for phase in PHASES
        }
        for layer in setup.trained
    }
    return {
        "format": FORMAT,
        "base": setup.base,
        "tokens_sha256": setup.data.sha256,
        "schedule": str(setup.schedule),
        "consumers": consumers,
        "losses": {e.name: e.weight for e in setup.plan.objective.trained().losses},
        "combine": setup.plan.objective.combine,
        "index_topk": setup.plan.objective.topk,
        "keys": kept,
        "files": result.files,
    }
