"""`distill plan`: memory, disk and time of a distillation, before anything runs.

Parameter counts are those of the model that the configuration makes (on the meta device).
Everything else is arithmetic over the recipe; the formulas are in docs/distillation-scale.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distill.config.train import DistillConfig
from distill.cost.layerwise import FP32, layerwise_cost
from distill.models.sizes import ModelSizes
from distill.objective.teacher_assignment import consumers_of, trained_layers
from evalkit.dsa import ReuseSchedule

FP64 = 8
ADAM = 5 * FP32  # weights, gradient, two moments, and the best ones so far
MASKED = 4  # logits, logits and sink, less their maximum, shares
BLOCKS = 6  # [B, queries, keys] blocks of one chunk that live at once, forward and backward

# name -> (memory of one device in GiB, dense bf16 TFLOP/s as its maker states)
HARDWARE = {
    "a100": (80, 312.0),
    "h100": (80, 989.0),
    "h200": (141, 989.0),
    "cpu": (16, 0.1),
}


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a distillation needs, in bytes, FLOP and seconds.

    Attributes:
        schedule: the arm.
        trained: full layers (ordinals) whose indexers train.
        tokens: that the gradient stage sees, text used again included.
        in_memory: bytes by what takes them, the whole model in memory.
        streamed: bytes by what takes them, one layer at a time.
        disk: bytes on disk by what takes them, one layer at a time.
        output: bytes of indexer.safetensors.
        layers_read: how often a layer is read, one layer at a time.
        bytes_read: read and written then.
        flop: by what takes it.
    """

    schedule: ReuseSchedule
    trained: tuple[int, ...]
    tokens: int
    in_memory: dict[str, int]
    streamed: dict[str, int]
    disk: dict[str, int]
    output: int
    layers_read: int
    bytes_read: int
    flop: dict[str, float]


def estimate(
    sizes: ModelSizes, native: ReuseSchedule, config: DistillConfig, *, itemsize: int = 2
) -> CostEstimate:
    """Memory, disk and FLOP of a recipe on a model.

    Args:
        sizes: from `sizes_of`.
        native: the model's own schedule.
        config: the recipe.
        itemsize: bytes per weight and activation of the frozen model.
    """
    schedule = config.arm.schedule(native)
    trained = trained_layers(schedule, config.student.first_layer, config.teacher.kind)
    consumers = {f: len(consumers_of(schedule, f)) for f in trained}
    data, train = config.data, config.train
    parts = {"one chunk of scores": config.queries.chunk_elements * FP32 * BLOCKS}
    if sizes.masked_heads:
        parts["attention scores of all pairs of tokens"] = _masked(sizes, config, itemsize)
    if config.student.start == "closed_form":
        parts["closed form: sums and candidates"] = _closed_form(sizes, max(consumers.values()))
    students = sizes.indexer * ADAM
    streamed = layerwise_cost(sizes, native, schedule, trained, config, itemsize)
    return CostEstimate(
        schedule=schedule,
        trained=trained,
        tokens=train.steps * train.batch * data.length,
        in_memory={
            "model": sizes.parameters * itemsize,
            f"{len(trained)} students, gradients, AdamW": students * len(trained),
            "micro-batch": _micro_batch(sizes, config, sum(consumers.values()), itemsize),
            **parts,
        },
        streamed={
            "one layer (twice while it loads)": 2 * sizes.largest_layer * itemsize,
            "one student, gradients, AdamW, its states to compare": students
            + sizes.indexer * FP32 * streamed.evaluations,
            "micro-batch": _micro_batch(sizes, config, max(consumers.values()), itemsize),
            **parts,
        },
        disk=streamed.disk,
        layers_read=streamed.layers_read,
        bytes_read=streamed.bytes_read,
        output=sizes.indexer * itemsize * len(trained),
        flop=_flop(sizes, native, schedule, consumers, config),
    )


def _closed_form(sizes: ModelSizes, consumers: int) -> int:
    """Per consumer a candidate, its indexer and sums in fp64; the inputs' products in fp64."""
    products = sizes.hidden**2 + sizes.latent**2
    return consumers * sizes.indexer * (FP32 + FP32 + FP64) + products * FP64


def _masked(sizes: ModelSizes, config: DistillConfig, itemsize: int) -> int:
    """Of one layer of a family whose attention is masked: as many as `MASKED` times at once."""
    keys = config.data.length + config.data.length // sizes.ratio
    pairs = config.train.micro_batch * config.data.length * keys
    return MASKED * sizes.masked_heads * pairs * itemsize


def _micro_batch(sizes: ModelSizes, config: DistillConfig, taught: int, itemsize: int) -> int:
    """Hidden states, attention's inputs and outputs (each twice), selections, and projections of
    the student and all teachers.
    """
    batch, length = config.train.micro_batch, config.data.length
    keys = length // sizes.ratio * sizes.width * FP32
    queries = config.queries.per_sequence * (sizes.heads * sizes.width + sizes.heads) * FP32
    states = length * (8 * sizes.hidden + 2 * sizes.attention) * itemsize
    states += 2 * length * min(sizes.topk, length) * 8
    return batch * (states + (taught + 3) * (keys + queries))


def _flop(
    sizes: ModelSizes,
    native: ReuseSchedule,
    schedule: ReuseSchedule,
    consumers: dict[int, int],
    config: DistillConfig,
) -> dict[str, float]:
    data, train = config.data, config.train
    length, draws = data.length, train.steps * train.batch
    pair = 2.0 * sizes.heads * sizes.width  # one query against one key
    scan = pair * length / 2 / sizes.ratio  # one query against its keys, causal mean

    def forward(full: int) -> float:
        sparse = 2.0 * sizes.attention * min(sizes.topk, length / 2) * sizes.layers
        return 2.0 * sizes.active + sparse + full * scan

    originals, arms = forward(sum(native.computes)), forward(sum(schedule.computes))
    evaluations = 2 + train.steps // train.evaluate_every
    on_policy = train.states == "on_policy"
    trials = 0.0
    if config.student.start == "closed_form":
        trials = config.closed_form.rounds * sum(
            data.calibration * length * ((1 + n) * arms + originals + arms)
            for n in consumers.values()
        )
    student = draws * config.queries.per_sequence * pair * length / 2 / sizes.ratio
    return {
        "forwards of the original": draws * length * originals,
        "forwards of the arm": draws * length * (arms if on_policy else originals),
        "scores: students (3 products) and teachers": sum(
            student * (3 + n) for n in consumers.values()
        ),
        "closed form and its choice": trials,
        "held-out evaluations": evaluations * data.held_out * length * (originals + arms),
    }


def report_lines(
    cost: CostEstimate,
    sizes: ModelSizes,
    *,
    memory: float,
    tflops: float,
    efficiency: float,
    disk: float,
) -> Iterator[str]:
    """The estimate in words.

    Args:
        cost: from `estimate`.
        sizes: of the model.
        memory: of the hardware, in GiB.
        tflops: peak of the hardware.
        efficiency: share of it that is reached.
        disk: read and write rate in GB/s.
    """
    ids = [cost.schedule.layer_ids[i] for i in cost.trained]
    share = sizes.indexer * len(ids) / sizes.parameters
    yield f"arm {cost.schedule}: the indexers of layers {', '.join(map(str, ids))} train"
    yield (
        f"{sizes.indexer * len(ids):,} of {sizes.parameters:,} parameters ({share:.2%});"
        f" indexer.safetensors {_bytes(cost.output)}"
    )
    for title, parts in (
        ("memory, whole model", cost.in_memory),
        ("memory, layer by layer", cost.streamed),
        ("disk, layer by layer", cost.disk),
    ):
        total = sum(parts.values())
        fits = ""
        if title.startswith("memory"):
            fits = f": {'fits' if total <= memory * 2**30 else 'does not fit'} {memory:g} GiB"
        yield f"{title}: {_bytes(total)}{fits}"
        yield from (f"  {_bytes(size):>10}  {name}" for name, size in parts.items())
    total_flop = sum(cost.flop.values())
    yield f"time, whole model: {_time(total_flop / (tflops * 1e12 * efficiency))} for" + (
        f" {cost.tokens:,} tokens at {efficiency:.0%} of {tflops:g} TFLOP/s"
    )
    for name, flop in cost.flop.items():
        if flop:
            yield f"  {flop / total_flop:>9.0%}  {name}"
    yield (
        f"time, layer by layer: forwards once per text instead of once per step; a layer is read"
        f" {cost.layers_read} times, with states {_bytes(cost.bytes_read)} to read and write:"
        f" {_time(cost.bytes_read / (disk * 1e9))} at {disk:g} GB/s"
    )


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} TiB"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:,.3g} h"
