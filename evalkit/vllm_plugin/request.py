"""The schedule that the environment asks for, checked before a server starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalkit.dsa.engine_config.parse import PLUGIN_VARIABLE as VARIABLE
from evalkit.dsa.json_types import JsonObject
from evalkit.dsa.layout import layout
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError

# vLLM picks the model by its architecture; the class of its configuration may be another model's.
ARCHITECTURES = {
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
}


def parsed(text: str) -> ReuseSchedule:
    """The schedule of a text.

    Raises:
        ScheduleError: it cannot be read, or cannot be.
    """
    try:
        return ReuseSchedule.parse(text)
    except ScheduleError as error:
        raise ScheduleError(f"{VARIABLE}: {error}") from None


def model_type_of(architectures: Sequence[str]) -> str:
    """The model type of an architecture.

    Raises:
        ScheduleError: the plugin is not for it.
    """
    for name in architectures:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    named = ", ".join(architectures) or "this model"
    raise ScheduleError(f"{VARIABLE}: {named}: the plugin is for {', '.join(ARCHITECTURES)}")


def fitted(schedule: ReuseSchedule, config: JsonObject) -> ReuseSchedule:
    """The schedule over the layers of a model.

    A schedule that names no layer ids counts the indexer-bearing layers: for DeepSeek-V4 the
    compressed-sparse ones.

    Args:
        schedule: as asked for.
        config: the model's configuration, with its model type as `model_type_of`.

    Raises:
        ScheduleError: another number of layers or other ids, or a full layer where the checkpoint
            has no indexer.
    """
    places = layout(config)
    if schedule.every_layer and len(schedule) == len(places.layer_ids):
        schedule = ReuseSchedule(
            schedule.computes, schedule.source, schedule.lag_phase, places.layer_ids
        )
    if schedule.layer_ids != places.layer_ids:
        shown = ",".join(map(str, places.layer_ids))
        raise ScheduleError(
            f"{VARIABLE}: {len(schedule)} letters over layers {_few(schedule.layer_ids)}, the model"
            f" has its {len(places.layer_ids)} indexers in layers {shown}"
        )
    schedule.require_indexers(places.native)
    if config["model_type"] != "deepseek_v4":
        _check_groups(schedule)
    return schedule


def check_settings(config: Any) -> None:
    """Raise for settings of the engine that the plugin does not go with.

    Args:
        config: vLLM's configuration.

    Raises:
        ScheduleError: which, and why.
    """
    parallel = config.parallel_config
    if parallel.use_ubatching:
        raise ScheduleError(f"{VARIABLE}: two batches at once (--enable-dbo) on one buffer")
    if parallel.prefill_context_parallel_size > 1 or parallel.decode_context_parallel_size > 1:
        raise ScheduleError(f"{VARIABLE}: context parallelism moves rows between ranks")
    if config.attention_config.hisparse_config is not None:
        raise ScheduleError(f"{VARIABLE}: a host-backed cache (hisparse_config) swaps by group")


def _check_groups(schedule: ReuseSchedule) -> None:
    """vLLM converts positions to cache slots once per full layer and its shared ones."""
    for phase in ("decode", "prefill"):
        sources = schedule.sources(phase)
        for i, full in enumerate(schedule.computes):
            if not full and sources[i] != sources[i - 1]:
                raise ScheduleError(
                    f"{VARIABLE}: layer {schedule.layer_ids[i]} shares the group of layer"
                    f" {schedule.layer_ids[i - 1]} and reads another source: vLLM converts"
                    " positions once per group"
                )


def _few(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids[:6])) + (" …" if len(ids) > 6 else "")
