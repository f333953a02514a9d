"""`distill plan`: memory, disk and time of a distillation, before anything runs.

Parameter counts are those of the model that the configuration makes (on the meta device).
Everything else is arithmetic over the recipe; the formulas are in docs/distillation-scale.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distill.config.train import DataConfig, DistillConfig, TrainConfig
from distill.cost.layerwise import layerwise_cost
from distill.models.sizes import FP32, ModelSizes
from distill.objective.teacher_assignment import TeacherAssignment, consumers_of, trained_layers
from distill.objective.text_activations import kept_bytes
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.scores import CHUNK_ELEMENTS

FP64 = 8
ADAM = 5 * FP32  # weights, gradient, two moments, and the best ones so far
MASKED = 4  # logits, logits and sink, less their maximum, shares
BLOCKS = 6  # blocks of one chunk that live at once: of scores, forward and backward; of attention

DEFAULT_TOKENS = TrainConfig().steps * TrainConfig().batch * DataConfig().length
ORIGINAL, ARM = "forwards of the original", "forwards of the arm"
SCORES = "scores: students (3 products) and teachers"
WARM_UP_TOKENS = 1000 * 16 * 128 * 1024
"""Of DeepSeek-V3.2's dense warm-up, all indexers at once (arXiv 2512.02556, section 2.1.1)."""

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
        stored: bytes of the checkpoint.
        streamed: bytes by what takes them, one layer at a time.
        disk: bytes on disk by what takes them, one layer at a time.
        output: bytes of indexer.safetensors.
        layers_read: how often a layer is read, one layer at a time.
        bytes_read: read and written then.
        flop: by what takes it.
        streamed_flop: one layer at a time: of what must wait for what came before.
        compared_flop: of states that are compared, which do not wait for each other.
        compared: how many of them at once.
    """

    schedule: ReuseSchedule
    trained: tuple[int, ...]
    tokens: int
    in_memory: dict[str, int]
    stored: int
    streamed: dict[str, int]
    disk: dict[str, int]
    output: int
    layers_read: int
    bytes_read: int
    flop: dict[str, float]
    streamed_flop: float
    compared_flop: float
    compared: int


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
    trained = trained_layers(
        schedule, config.student.first_layer, config.teacher.kind, config.arm.selection
    )
    consumers = {f: len(consumers_of(schedule, f)) for f in trained}
    data, train = config.data, config.train
    parts = _blocks(sizes, config, max(consumers.values()), itemsize)
    kept = kept_bytes(sizes, config, TeacherAssignment.of(native, schedule, trained), itemsize)
    students = sizes.indexer * ADAM
    streamed = layerwise_cost(sizes, native, schedule, trained, config, itemsize)
    flop = _flop(sizes, native, schedule, consumers, config, bool(kept))
    of_original, of_arm = (
        data.length * _forward(sizes, data.length, sum(each.computes)) / sizes.layers
        for each in (native, schedule)
    )
    return CostEstimate(
        schedule=schedule,
        trained=trained,
        tokens=train.steps * train.batch * data.length,
        in_memory={
            "model, dequantised" if sizes.quantised else "model": sizes.parameters * itemsize,
            f"{len(trained)} students, gradients, AdamW": students * len(trained),
            "micro-batch": _micro_batch(sizes, config, sum(consumers.values()), itemsize),
            **({"activations of texts that are drawn again": kept} if kept else {}),
            **parts,
        },
        stored=sizes.stored(itemsize),
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
        flop=flop,
        streamed_flop=streamed.original_runs * of_original
        + streamed.arm_runs * of_arm
        + flop[SCORES],
        compared_flop=streamed.compared_runs * of_arm,
        compared=streamed.compared,
    )


def _blocks(
    sizes: ModelSizes, config: DistillConfig, consumers: int, itemsize: int
) -> dict[str, int]:
    """What comes and goes: chunks of scores and of attention, the closed form's sums."""
    parts = {"one chunk of scores": _chunk(sizes, config) * FP32 * BLOCKS}
    if sizes.masked_heads:
        parts["attention scores of all pairs of tokens"] = _masked(sizes, config, itemsize)
    else:
        every = config.train.micro_batch * config.data.length * sizes.attention
        parts["one chunk of attention"] = min(CHUNK_ELEMENTS, every) * FP32 * BLOCKS
    if config.student.start == "closed_form":
        parts["closed form: sums and candidates"] = _closed_form(sizes, consumers)
    return parts


def _closed_form(sizes: ModelSizes, consumers: int) -> int:
    """Per consumer a candidate, its indexer and sums in fp64; the inputs' products in fp64."""
    products = sizes.hidden**2 + sizes.latent**2
    return consumers * sizes.indexer * (FP32 + FP32 + FP64) + products * FP64


def _chunk(sizes: ModelSizes, config: DistillConfig) -> int:
    """Elements of the largest [B, queries, keys] block."""
    rows = config.train.micro_batch * config.queries.per_sequence
    return min(config.queries.chunk_elements, rows * (config.data.length // sizes.ratio))


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


def _scan(sizes: ModelSizes, length: int) -> float:
    """FLOP of one query against its keys, causal mean."""
    return 2.0 * sizes.heads * sizes.width * length / 2 / sizes.ratio


def _forward(sizes: ModelSizes, length: int, full: int) -> float:
    """FLOP of one token through a model in which some layers scan all keys."""
    sparse = 2.0 * sizes.attention * min(sizes.topk, length / 2) * sizes.layers
    return 2.0 * sizes.active + sparse + full * _scan(sizes, length)


def _flop(
    sizes: ModelSizes,
    native: ReuseSchedule,
    schedule: ReuseSchedule,
    consumers: dict[int, int],
    config: DistillConfig,
    kept: bool,
) -> dict[str, float]:
    data, train = config.data, config.train
    length, draws = data.length, train.steps * train.batch
    originals, arms = (_forward(sizes, length, sum(each.computes)) for each in (native, schedule))
    evaluations = 2 + train.steps // train.evaluate_every
    on_policy = train.states == "on_policy"
    trials = 0.0
    if config.student.start == "closed_form":
        trials = config.closed_form.rounds * sum(
            data.calibration * length * ((1 + n) * arms + originals + arms)
            for n in consumers.values()
        )
    student = draws * config.queries.per_sequence * _scan(sizes, length)
    return {
        ORIGINAL: (data.train if kept else draws) * length * originals,
        ARM: draws * length * arms * on_policy,
        SCORES: sum(student * (3 + n) for n in consumers.values()),
        "closed form and its choice": trials,
        "held-out evaluations": evaluations * data.held_out * length * (originals + arms),
    }


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a distillation would run on.

    Attributes:
        memory: of one device, in GiB.
        tflops: peak of one device.
        efficiency: share of it that is reached.
        disk: read and write rate in GB/s.
        devices: how many.
    """

    memory: float
    tflops: float
    efficiency: float
    disk: float
    devices: int = 1

    def seconds(self, flop: float, devices: int = 1) -> float:
        """Of some FLOP on some devices."""
        return flop / (self.tflops * devices * 1e12 * self.efficiency)


def report_lines(cost: CostEstimate, sizes: ModelSizes, hardware: Hardware) -> Iterator[str]:
    """The estimate of `estimate` in words."""
    ids = [cost.schedule.layer_ids[i] for i in cost.trained]
    share = sizes.indexer * len(ids) / sizes.parameters
    yield f"arm {cost.schedule}: the indexers of layers {', '.join(map(str, ids))} train"
    yield (
        f"{sizes.indexer * len(ids):,} of {sizes.parameters:,} parameters ({share:.2%});"
        f" indexer.safetensors {_bytes(cost.output)}"
    )
    in_fp8 = f", {sizes.quantised / sizes.parameters:.0%} of it FP8" if sizes.quantised else ""
    yield f"checkpoint on disk: {_bytes(cost.stored)}{in_fp8}"
    for title, parts, devices in (
        ("memory, whole model", cost.in_memory, hardware.devices),
        ("memory, layer by layer", cost.streamed, 1),
        ("disk, layer by layer", cost.disk, 0),
    ):
        total, room = sum(parts.values()), hardware.memory * devices
        fits = "fits" if total <= room * 2**30 else "does not fit"
        where = f"{room:g} GiB on {devices} device{'s' * (devices > 1)}"
        yield f"{title}: {_bytes(total)}" + (f": {fits} {where}" if devices else "")
        yield from (f"  {_bytes(size):>10}  {name}" for name, size in parts.items())
    yield from _time_lines(cost, hardware)
    yield from _token_lines(cost, hardware)


def _time_lines(cost: CostEstimate, hardware: Hardware) -> Iterator[str]:
    total, devices = sum(cost.flop.values()), hardware.devices
    yield (
        f"time, whole model: {_time(hardware.seconds(total, devices))} for {cost.tokens:,} tokens"
        f" at {hardware.efficiency:.0%} of {hardware.tflops * devices:g} TFLOP/s"
    )
    for name, flop in cost.flop.items():
        if flop:
            yield f"  {flop / total:>9.0%}  {name}"
    disk = cost.bytes_read / (hardware.disk * 1e9)
    serial, apart = (hardware.seconds(f) for f in (cost.streamed_flop, cost.compared_flop))
    yield (
        f"time, layer by layer: {_time(serial + apart + disk)} on 1 device: compute"
        f" {_time(serial + apart)}, disk {_time(disk)} at {hardware.disk:g} GB/s (a layer is read"
        f" {cost.layers_read} times, with states {_bytes(cost.bytes_read)} to read and write)"
    )
    if devices > 1:
        used = max(1, min(devices, cost.compared))
        yield (
            f"  on {devices} devices at best {_time(serial + apart / used + disk)}: the"
            f" {cost.compared} states that are compared are independent; `distill layerwise` itself"
            " runs on one"
        )


def _token_lines(cost: CostEstimate, hardware: Hardware) -> Iterator[str]:
    """Tokens of the gradient stage here, by default, and in DeepSeek's dense warm-up."""
    if not cost.tokens:
        return
    rate = sum(cost.flop[name] for name in (ORIGINAL, ARM, SCORES)) / cost.tokens
    yield "tokens of the gradient stage, whole model:"
    for tokens, what in (
        (cost.tokens, "this recipe"),
        (DEFAULT_TOKENS, "a recipe's defaults"),
        (WARM_UP_TOKENS, "dense warm-up of DeepSeek-V3.2 (arXiv 2512.02556, section 2.1.1)"),
    ):
        seconds = hardware.seconds(rate * tokens, hardware.devices)
        yield f"  {tokens:>13,}  {_time(seconds):>10}  {what}"


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
