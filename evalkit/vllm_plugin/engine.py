"""What the plugin replaces in vLLM, and the schedule on a loaded model."""

from __future__ import annotations

import logging
from functools import wraps
from pathlib import Path
from typing import Any

from evalkit.dsa.engine_config.parse import PLUGIN_FIELD as NOTE  # and the worker's method
from evalkit.dsa.schedule import ReuseSchedule, ScheduleError
from evalkit.dsa.stages import check_cut
from evalkit.vllm_plugin import deepseek_v4, deepseek_v32, releases
from evalkit.vllm_plugin.buffers import SelectionBuffers, prompt_rows
from evalkit.vllm_plugin.plugin import stop
from evalkit.vllm_plugin.report import Engaged, engaged
from evalkit.vllm_plugin.request import check_settings, fitted, model_type_of, parsed
from evalkit.vllm_plugin.routing import routes

_LOG = logging.getLogger("vllm.evalkit")  # below vLLM's own logger: its handler prints it
_MARK = "_evalkit"


def install(text: str) -> None:
    """Replace what the schedule needs, once per process.

    Raises:
        ScheduleError: the text is no schedule, or this vLLM is not one that was read.
    """
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    asked = parsed(text)
    releases.check(vllm.__version__, Path(vllm.__file__).parent)

    def configured(config: Any, *_: Any, **__: Any) -> None:
        configure(config, asked)

    def loaded(
        model: Any, _: Any, vllm_config: Any, model_config: Any, *__: Any, **___: Any
    ) -> None:
        draft = getattr(model_config, "runner_type", "") == "draft"
        if model_config is vllm_config.model_config and not draft:
            attach(model, vllm_config, vllm.__version__)

    _after(EngineArgs, "create_engine_config", configured)
    _after(BaseModelLoader, "load_model", loaded)


def configure(config: Any, asked: ReuseSchedule) -> None:
    """Check a schedule against the engine's configuration, and note it there.

    Raises:
        ScheduleError: it does not fit the model, or does not go with a setting.
    """
    from vllm.distributed.utils import get_pp_indices
    from vllm.platforms import current_platform

    if not (current_platform.is_cuda() or current_platform.is_cpu()):
        raise ScheduleError(f"{current_platform.device_type}: what was read is for CUDA and CPU")

    model = config.model_config
    model_type = model_type_of(model.architectures)
    fields = model.hf_text_config.to_dict() | {"model_type": model_type}
    schedule = fitted(asked, fields)
    check_settings(config)
    stages = config.parallel_config.pipeline_parallel_size
    for stage in range(stages):
        check_cut(schedule, range(*get_pp_indices(fields["num_hidden_layers"], stage, stages)))
    if model_type != "deepseek_v4":
        model.hf_config.index_topk_pattern = schedule.pattern
        model.hf_text_config.index_topk_pattern = schedule.pattern
    config.additional_config = {**config.additional_config, NOTE: str(schedule)}


def attach(model: Any, config: Any, version: str) -> None:
    """Give the layers of a loaded model their buffers, and say so in one line.

    Raises:
        ScheduleError: the model's layers are not those of the schedule.
    """
    from vllm.distributed.parallel_state import get_world_group
    from vllm.v1.attention.backends.mla.indexer import DeepseekV32IndexerMetadataBuilder
    from vllm.v1.worker.worker_base import WorkerBase

    note = config.additional_config.get(NOTE)
    if note is None:
        raise ScheduleError("the engine's configuration was not made under EVALKIT_SCHEDULE")
    buffers, said = bind(model, parsed(note), get_world_group().rank, version)

    def split(
        metadata: Any,
        _builder: Any,
        common_prefix_len: int = 0,  # noqa: ARG001
        common_attn_metadata: Any = None,
        **_: Any,
    ) -> None:
        prompts = prompt_rows(metadata.num_decodes, common_attn_metadata)
        buffers.split(metadata.num_decode_tokens, prompts)

    _after(DeepseekV32IndexerMetadataBuilder, "build", split)
    setattr(WorkerBase, NOTE, lambda _: said.record())
    _LOG.info("%s", said.line)


def bind(
    model: Any, schedule: ReuseSchedule, rank: int, version: str
) -> tuple[SelectionBuffers, Engaged]:
    """Buffers for the layers that this rank has.

    Raises:
        ScheduleError: none of them, others than the schedule counts, or a reader without source.
    """
    family = next((f for f in (deepseek_v4, deepseek_v32) if f.layers(model)), None)
    if family is None:
        raise ScheduleError(f"{type(model).__name__}: no layer with an indexer that is known here")
    present = family.layers(model)
    foreign = sorted(set(present) - set(schedule.layer_ids))
    if foreign:
        raise ScheduleError(f"layer {foreign[0]} has an indexer, and the schedule has no letter")
    check_cut(schedule, present)
    plan = routes(schedule)
    buffers = SelectionBuffers(plan, family.own_buffer(next(iter(present.values()))))
    for layer, route in zip(schedule.layer_ids, plan.layers, strict=True):
        if layer in present:
            family.bind(present[layer], route, buffers)
    return buffers, engaged(schedule, tuple(sorted(present)), rank=rank, version=version)


def _after(owner: Any, name: str, then: Any) -> None:
    """Call ``then(result, *arguments)`` after a method; a second call replaces `then`."""
    method = getattr(owner, name)
    run = getattr(method, _MARK, method)

    @wraps(run)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        try:
            then(result, *args, **kwargs)
        except ScheduleError as error:
            stop(error)
        return result

    setattr(replaced, _MARK, run)
    setattr(owner, name, replaced)
