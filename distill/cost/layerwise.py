"""Disk and reading of a distillation that goes layer by layer, before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from distill.config.train import DistillConfig
from distill.models.sizes import Shape
from distill.objective.query_sampling import two_phases
from evalkit.dsa import ReuseSchedule

FP32 = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """What lies on disk at once, and what is read.

    Attributes:
        disk: bytes by what takes them.
        opened: decoder layers that are read, the same one again included.
        read: bytes of those layers, and of hidden states read and written.
        looks: states of a student that are kept to be compared.
    """

    disk: dict[str, int]
    opened: int
    read: int
    looks: int


def layerwise(
    shape: Shape, native: ReuseSchedule, schedule: ReuseSchedule, trained: tuple[int, ...],
    config: DistillConfig, itemsize: int,
) -> Reading:  # fmt: skip
    """The estimate for a recipe.

    Args:
        shape: of the model.
        native: the model's own schedule.
        schedule: the arm.
        trained: full layers (ordinals) whose indexers train.
        config: the recipe.
        itemsize: bytes per weight and activation of the frozen model.
    """
    data, train, length = config.data, config.train, config.data.length
    draws, on_policy = train.steps * train.batch, train.states == "on_policy"
    teachers = {f: {native.source[c] for c in served(schedule, f)} for f in trained}
    most = max(map(len, teachers.values()))
    looks = 1 + -(-train.steps // train.evaluate_every)
    closed = config.student.start == "closed_form"
    by_logits = config.choice.checkpoint == "logit_kl"
    compared = [data.calibration * (1 + most)] * closed + [data.held_out * looks] * by_logits
    drawn = min(data.train, draws)
    kept = data.held_out + drawn + data.calibration * closed
    judged = data.calibration * closed + data.held_out * by_logits
    taught = draws if two_phases(schedule) else drawn  # under a lag every draw is carried
    carried = kept - drawn + taught * on_policy
    tried = max(compared, default=0)

    ids, layers = schedule.layer_ids, shape.layers
    original, arm = ids[max(map(max, teachers.values()))] + 1, ids[trained[-1]]
    behind = sum(layers - ids[f] for f in trained)
    opened = original + arm + layers * (judged > 0) + behind * len(compared)
    opened += len(trained) * 2
    walked = original * kept + arm * carried + layers * 2 * judged + behind * sum(compared)

    waiting = carried if on_policy else kept * _span(teachers, len(schedule))
    row = (shape.heads * shape.width + shape.heads) * FP32
    states = shape.hidden * length * itemsize
    return Reading(
        disk={
            "hidden states": (kept + carried + 2 * judged + tried) * states,
            "inputs of the full layer": waiting * length * (shape.hidden + shape.latent) * itemsize,
            "teachers": most * (kept * length // shape.ratio * shape.width * FP32
            + draws * config.loss.rows * row),
            "selections": (kept + carried + 2 * judged + tried)
            * length * min(shape.topk, length) * FP32,
        },
        opened=opened,
        read=opened * ((shape.parameters - shape.outside) // layers) * itemsize
        + 2 * walked * states,
        looks=looks,
    )  # fmt: skip


def served(schedule: ReuseSchedule, layer: int) -> set[int]:
    """Layers that read the selection of a full layer, in either phase."""
    return {*schedule.consumers(layer, "prefill"), *schedule.consumers(layer, "decode")}


def _span(teachers: dict[int, set[int]], layers: int) -> int:
    """Full layers whose inputs wait at once for the last layer that teaches them."""
    ends = {f: max(some) for f, some in teachers.items()}
    return max(sum(f <= at <= end for f, end in ends.items()) for at in range(layers))
