"""The entry point of `vllm.general_plugins`, loaded in every process of the engine.

It replaces, by name, and adds to what it replaces:

- `EngineArgs.create_engine_config`: the schedule is checked against model and settings, and noted
  in the configuration (front process).
- `BaseModelLoader.load_model`: the layers of the loaded model get their buffers (workers).
- `DeepseekV32IndexerMetadataBuilder.build`: the buffers learn how many tokens decode (workers).
- `WorkerBase.evalkit_schedule`: new; what a rank runs, for `/collective_rpc`.

vLLM goes on without a plugin whose import fails, so nothing is imported here that could fail; what
cannot run ends the process with one line instead.
"""

from __future__ import annotations

import os
from typing import Any


def register() -> None:
    """Put the schedule of `EVALKIT_SCHEDULE` in force; without it, do nothing."""
    if not os.environ.get("EVALKIT_SCHEDULE", "").strip():
        return
    try:
        from evalkit.vllm_plugin.engine import install

        install(os.environ["EVALKIT_SCHEDULE"])
    except Exception as error:
        stop(error)


def stop(error: Any) -> None:
    """End this process with one line: a server must not start without its schedule."""
    raise SystemExit(f"evalkit: {' '.join(str(error).split())}") from None
