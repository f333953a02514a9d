"""How settings are handed to an engine: the command, or the code, to copy."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from evalkit.dsa.engine_config.dialect import Launch
from evalkit.dsa.json_types import JsonObject


def launch_line(
    launch: Launch | None,
    model: str,
    overrides: JsonObject,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> str:
    """The launch line of an engine.

    Args:
        launch: kind of engine; None: nothing is written.
        model: checkpoint.
        overrides: configuration fields; none are handed over where it is empty.
        environment: variables set in front of a command.
        flags: further arguments of a command, as they are.
    """
    if launch == "megatron":
        pairs = [f"--{key.replace('_', '-')} {value}" for key, value in overrides.items()]
        return " ".join(pairs) or "(no flags)"
    if launch == "prime-rl":
        pattern = overrides.get("index_topk_pattern")
        setting = f'topk_pattern = "{pattern}"' if pattern else "topk_freq = 1"
        section = f"[trainer.model.index_cache]\n{setting}"
        return section if overrides else "(no index_cache section)"
    if launch == "transformers":
        types = overrides.get("indexer_types")  # the pattern is for config.json; it is no argument
        kwargs = f", indexer_types={types!r}" if types else ""
        return f"AutoModelForCausalLM.from_pretrained({model!r}{kwargs})"
    words = [f"{key}={shlex.quote(value)}" for key, value in (environment or {}).items()]
    if launch == "sglang":
        words += ["python -m sglang.launch_server --model-path", shlex.quote(model)]
    elif launch == "vllm":
        words += ["vllm serve", shlex.quote(model)]
    if overrides:
        option = "--hf-overrides" if launch == "vllm" else "--json-model-override-args"
        words += [option, shlex.quote(json.dumps(overrides))]
    return " ".join([*words, *map(shlex.quote, flags)])
