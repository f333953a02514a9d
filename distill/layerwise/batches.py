"""Batches of one full layer from disk: its inputs, and what its teachers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from distill.data.batch import Batch
from distill.layerwise.setup import LayerwiseSetup
from distill.objective.query_sampling import QueryGroup
from distill.objective.teachers import IndexTeacher
from evalkit.dsa import IndexerCall, IndexFeatures

Tensors = Mapping[str, Tensor]
Groups = list[tuple[QueryGroup, list[IndexTeacher]]]


@dataclass(frozen=True, slots=True)
class LayerBatch:
    """One batch for one full layer.

    Attributes:
        call: its inputs.
        groups: query positions and their teachers, one per consumer.
    """

    call: IndexerCall
    groups: Groups


def training_batch(
    setup: LayerwiseSetup, layer: int, draws: Sequence[int], scale: float
) -> LayerBatch:
    """Some draws of training text.

    Args:
        setup: whose store holds them.
        layer: the full layer (ordinal).
        draws: their numbers.
        scale: of the index scores, see `IndexFeatures`.
    """
    store, device = setup.store, setup.device
    length = _drawn(setup, draws).ids.shape[1]
    inputs_at = [setup.place_of_draw(draw) for draw in draws]
    inputs = [
        {k: v[:, :length] for k, v in store.row(f"input/{layer}/{name}", row, device).items()}
        for name, row in inputs_at
    ]
    groups = training_groups(setup, layer, draws, scale)
    return LayerBatch(_call(setup, inputs, [name for name, _ in inputs_at]), groups)


def training_groups(
    setup: LayerwiseSetup, layer: int, draws: Sequence[int], scale: float
) -> Groups:
    """What teaches some draws, of `training_batch`, whose arguments these are."""
    store, device, batch = setup.store, setup.device, _drawn(setup, draws)
    places = [setup.place(setup.numbers[draw]) for draw in draws]
    length = batch.ids.shape[1]
    prompts = setup.plan.prompt_lengths(batch, draws)
    groups = []
    for group in setup.plan.query_groups(batch, draws, prompts):
        teachers = []
        for teacher in setup.plan.assignment.teachers(group.phase, layer):
            root = f"teach/{teacher}"
            queries = [store.get(f"{root}/draw/{d}/{group.phase}", device) for d in draws]
            keys = [
                store.row(f"{root}/keys/{name}", row, device)["key"][:, :length]
                for name, row in places
            ]
            teachers.append(_teacher(queries, _stacked(keys), group, scale))
        if teachers:
            groups.append((group, teachers))
    return groups


def _drawn(setup: LayerwiseSetup, draws: Sequence[int]) -> Batch:
    return setup.data.splits["train"].batch([setup.numbers[draw] for draw in draws])


def evaluation_batch(
    setup: LayerwiseSetup, layer: int, name: str, batch: Batch, scale: float
) -> LayerBatch:
    """A batch of held-out text at its own query positions; arguments as of `training_batch`."""
    inputs = setup.store.get(f"input/{layer}/{name}", setup.device)
    groups = evaluation_groups(setup, layer, name, batch, scale)
    return LayerBatch(call_of(setup, inputs, name), groups)


def evaluation_groups(
    setup: LayerwiseSetup, layer: int, name: str, batch: Batch, scale: float
) -> Groups:
    """What teaches a batch of held-out text, of `evaluation_batch`, whose arguments these are."""
    store, device = setup.store, setup.device
    groups = []
    for group in evaluation_queries(setup, batch):
        teachers = []
        for teacher in setup.plan.assignment.teachers(group.phase, layer):
            root = f"teach/{teacher}"
            key = store.get(f"{root}/keys/{name}", device)["key"]
            queries = store.get(f"{root}/look/{name}/{group.phase}", device)
            teachers.append(_teacher([queries], key, group, scale))
        if teachers:
            groups.append((group, teachers))
    return groups


def evaluation_queries(setup: LayerwiseSetup, batch: Batch) -> list[QueryGroup]:
    """Query positions of held-out and calibration text, as `distill train` draws them."""
    draws = batch.own_draws
    return setup.plan.query_groups(batch, draws, setup.plan.prompt_lengths(batch, draws))


def call_of(setup: LayerwiseSetup, inputs: Tensors, name: str) -> IndexerCall:
    """A whole batch's indexer call from its stored inputs."""
    return _call(setup, [inputs], [name])


def _call(setup: LayerwiseSetup, inputs: Sequence[Tensors], names: Sequence[str]) -> IndexerCall:
    """The call of inputs [1 or B, S, …] that come from the batches of these names."""
    store, device = setup.store, setup.device
    hidden = _stacked([each["hidden"] for each in inputs])
    latent = _stacked([each["q_resid"] for each in inputs]) if "q_resid" in inputs[0] else None
    length, rope = hidden.shape[1], None
    for name in names:  # the tables are those of positions: any long enough ones will do
        if f"rope/{name}" in store:
            table = store.get(f"rope/{name}", device)
            if table["cos"].shape[1] >= length:
                rope = (table["cos"][:, :length], table["sin"][:, :length])
                break
    positions = torch.arange(length, device=device)[None]
    return IndexerCall(hidden, latent, rope, None, positions, None, 0)


def _teacher(
    queries: Sequence[Tensors], key: Tensor, group: QueryGroup, scale: float
) -> IndexTeacher:
    return IndexTeacher(
        IndexFeatures(
            query=torch.cat([each["query"] for each in queries]),
            key=key,
            weight=torch.cat([each["weight"] for each in queries]),
            scale=scale,
            positions=group.positions.to(key.device),
        )
    )


def _stacked(parts: list[Tensor]) -> Tensor:
    """[1, S, ...] tensors as [B, longest S, ...], zeros after the shorter ones."""
    longest = max(part.shape[1] for part in parts)
    return torch.cat([pad(p, (0, 0) * (p.dim() - 2) + (0, longest - p.shape[1])) for p in parts])
