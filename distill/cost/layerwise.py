"""Disk and reading of a distillation that goes layer by layer, before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distill.config.train import DistillConfig
from distill.models.sizes import FP32, ModelSizes
from distill.objective.query_sampling import has_two_phases
from distill.objective.teacher_assignment import consumers_of
from evalkit.dsa import ReuseSchedule


@dataclass(frozen=True, slots=True)
class LayerwiseCost:
    """What lies on disk at once, and what is read.

    Attributes:
        disk: bytes by what takes them.
        layers_read: decoder layers that are read, the same one again included.
        bytes_read: of those layers, and of hidden states read and written.
        evaluations: states of a student that are kept to be compared.
        original_runs: sequences times layers that the original goes through.
        arm_runs: the same of the arm.
        compared_runs: the same of its states that are compared, which do not wait for each other.
        compared: how many of them at once.
    """

    disk: dict[str, int]
    layers_read: int
    bytes_read: int
    evaluations: int
    original_runs: int
    arm_runs: int
    compared_runs: int
    compared: int


def layerwise_cost(
    sizes: ModelSizes,
    native: ReuseSchedule,
    schedule: ReuseSchedule,
    trained: tuple[int, ...],
    config: DistillConfig,
    itemsize: int,
) -> LayerwiseCost:
    """The estimate for a recipe.

    Args:
        sizes: of the model.
        native: the model's own schedule.
        schedule: the arm.
        trained: full layers (ordinals) whose indexers train.
        config: the recipe.
        itemsize: bytes per weight and activation of the frozen model.
    """
    data, train, length = config.data, config.train, config.data.length
    draws, on_policy = train.steps * train.batch, train.states == "on_policy"
    teachers = {f: {native.source[c] for c in consumers_of(schedule, f)} for f in trained}
    most = max(map(len, teachers.values()))
    evaluations = 1 + -(-train.steps // train.evaluate_every)
    closed_form = config.student.start == "closed_form"
    by_logits = config.choice.checkpoint == "logit_kl"
    compared = _compared(config, most, evaluations)
    drawn = min(data.train, draws)
    kept = data.held_out + drawn + data.calibration * closed_form
    to_the_end = data.calibration * closed_form + data.held_out * by_logits
    streams = 3 if config.choice.positions == "far" else 2  # as `LogitEvaluator` has them
    taught = draws if has_two_phases(schedule) else drawn  # under a lag every draw is carried
    carried = kept - drawn + taught * on_policy

    ids, layers = schedule.layer_ids, sizes.layers
    original, arm = ids[max(map(max, teachers.values()))] + 1, ids[trained[-1]]
    after = sum(layers - ids[f] for f in trained)
    to_read = original + arm + layers * (to_the_end > 0) + after * len(compared) + len(trained)
    original_runs = original * kept + layers * (streams - 1) * to_the_end
    arm_runs, compared_runs = arm * carried + layers * to_the_end, after * sum(compared)
    moved = original_runs + arm_runs + compared_runs
    waiting = carried if on_policy else kept * _most_waiting(teachers, len(schedule))
    by_layer = (sizes.stored(itemsize) - sizes.outside * itemsize) // layers
    return LayerwiseCost(
        disk=_disk(
            sizes,
            length=length,
            itemsize=itemsize,
            sequences=kept + carried + streams * to_the_end + max(compared, default=0),
            waiting=waiting,
            keys=most * kept,
            queries=most * draws * config.queries.per_sequence,
        ),
        layers_read=to_read,
        bytes_read=to_read * by_layer + 2 * moved * sizes.hidden * length * itemsize,
        evaluations=evaluations,
        original_runs=original_runs,
        arm_runs=arm_runs,
        compared_runs=compared_runs,
        compared=max(1 + most if closed_form else 0, evaluations if by_logits else 0),
    )


def _compared(config: DistillConfig, most: int, evaluations: int) -> list[int]:
    """Sequences times states, for every comparison by final logits at one full layer."""
    compared = []
    if config.student.start == "closed_form":
        compared.append(config.data.calibration * (1 + most))
    if config.choice.checkpoint == "logit_kl":
        compared.append(config.data.held_out * evaluations)
    return compared


def _disk(
    sizes: ModelSizes,
    *,
    length: int,
    itemsize: int,
    sequences: int,
    waiting: int,
    keys: int,
    queries: int,
) -> dict[str, int]:
    """Bytes by what takes them.

    Args:
        sizes: of the model.
        length: tokens of a sequence.
        itemsize: bytes per weight and activation of the frozen model.
        sequences: whose hidden states and selections are kept, states of a student counted too.
        waiting: sequences whose inputs of the full layer are kept.
        keys: sequences whose index keys are kept, times teachers.
        queries: index queries that are kept, times teachers.
    """
    query = (sizes.heads * sizes.width + sizes.heads) * FP32
    return {
        "hidden states": sequences * sizes.hidden * length * itemsize,
        "inputs of the full layer": waiting * length * (sizes.hidden + sizes.latent) * itemsize,
        "teachers": keys * length // sizes.ratio * sizes.width * FP32 + queries * query,
        "selections": sequences * length * min(sizes.topk, length) * FP32,
    }


def _most_waiting(teachers: Mapping[int, set[int]], layers: int) -> int:
    """Full layers whose inputs wait at once for the last layer that teaches them."""
    last = {f: max(each) for f, each in teachers.items()}
    return max(sum(f <= at <= end for f, end in last.items()) for at in range(layers))
