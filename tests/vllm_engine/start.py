"""A vLLM of this process: the variables that it needs before it is imported, and its start."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
    "TRITON_INTERPRET": "1",
    "HF_HUB_OFFLINE": "1",
}


def prepare() -> None:
    """Before the first import of vLLM.

    Helper kernels are written in Triton, which has no CPU backend here: its interpreter runs them,
    once vLLM is told that there is a backend for the CPU.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if "vllm" in sys.modules:
        return
    from triton.backends import backends

    driver = SimpleNamespace(is_active=lambda: False)
    backends.setdefault("cpu", SimpleNamespace(driver=driver, compiler=None))


def engine(directory: Any, **options: Any) -> Any:
    """An `LLM` on the CPU; a schedule comes by EVALKIT_SCHEDULE as for a server."""
    prepare()
    from vllm import LLM

    from tests.vllm_engine import fixes

    fixes.install()
    settings = {
        "load_format": "safetensors",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "bfloat16",
        "max_model_len": 4096,
        "max_num_batched_tokens": 4096,
        "max_num_seqs": 4,
        "enable_prefix_caching": False,
        "disable_log_stats": True,
    }
    return LLM(model=str(directory), **(settings | options))


def model_of(llm: Any) -> Any:
    """The model that its only worker has loaded."""
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()


def answer(llm: Any, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Greedy continuations."""
    from vllm import SamplingParams

    greedy = SamplingParams(temperature=0, max_tokens=tokens, detokenize=False, ignore_eos=True)
    asked = [{"prompt_token_ids": ids} for ids in prompts]
    return [list(out.outputs[0].token_ids) for out in llm.generate(asked, greedy, use_tqdm=False)]
