"""What vLLM 0.32 needs to start DSA models on a CPU, one by one; nothing of it is copied."""

from __future__ import annotations

from unittest import mock

from tests.vllm_engine import kernels, plain_mla


def install() -> tuple[str, ...]:
    """Put all of them in place; the kernels that had to be replaced."""
    _tile_schedules_that_the_cpu_does_not_have()
    plain_mla.install()
    missing = kernels.install()
    if missing:
        _chunks_and_prefixes_as_with_amx()
    return missing


def _tile_schedules_that_the_cpu_does_not_have() -> None:
    """`sparse_swa.py` looks "c1a" and "c2a" up, which the CPU's planner leaves out."""
    from vllm.models.deepseek_v4.cpu.cpu_mla import DeepseekV4CPUSparseSWAMetadataBuilder
    from vllm.v1.attention.backends.mla import sparse_swa

    class Complete(dict):
        def __missing__(self, key):
            return None

    for builder in (
        DeepseekV4CPUSparseSWAMetadataBuilder,
        sparse_swa.DeepseekSparseSWAMetadataBuilder,
    ):
        plan = builder.build_tile_scheduler
        builder.build_tile_scheduler = lambda *args, _plan=plan: Complete(_plan(*args))


def _chunks_and_prefixes_as_with_amx() -> None:
    """Without AMX tiles vLLM switches chunked prefill and prefix caching off, kernels aside."""
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config

    def checked(vllm_config):
        with mock.patch("torch.cpu._is_amx_tile_supported", return_value=True):
            check(vllm_config)

    CpuPlatform.check_and_update_config = staticmethod(checked)
