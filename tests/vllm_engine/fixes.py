"""What vLLM 0.32 needs to start DSA models on a CPU, one by one; nothing of it is copied."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor

from tests.vllm_engine import kernels, plain_mla


def install() -> tuple[str, ...]:
    """Put all of them in place; the kernels that had to be replaced."""
    _tile_schedules_that_the_cpu_does_not_have()
    _windows_without_the_interpreter()
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


def _windows_without_the_interpreter() -> None:
    """Two thirds of a long prompt's time is one Triton kernel, run token by token in Python."""
    from vllm.v1.attention.backends.mla.sparse_swa import ComputeSWAIndicesAndLensKernel

    ComputeSWAIndicesAndLensKernel.__call__ = windows


def windows(
    _: Any,
    swa_indices: Tensor,
    swa_lens: Tensor,
    window_size: int,
    index_width: int,
    left_visible: Tensor,
    right_visible: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    token_to_req_indices: Tensor,
    is_valid_token: Tensor,
    block_table: Tensor,
    block_size: int,
    replay_start: Tensor,
    *,
    num_tokens: int,
    token_offset: int,
    has_image: bool = False,
) -> None:
    """Slots of the sliding window of every token, as vLLM's kernel writes them."""
    assert not has_image
    rows = torch.arange(token_offset, token_offset + num_tokens)
    valid = is_valid_token[rows]
    request = token_to_req_indices[rows].long().masked_fill(~valid, 0)
    before = seq_lens[request] - query_start_loc[request + 1]  # less the token's own start
    position = (before + rows).int()
    first = (position - (window_size - 1)).clamp(min=0).maximum(replay_start[request])
    count = position + 1 - first
    offset = torch.arange(index_width)
    place = first.unsqueeze(1) + offset
    block = (place // block_size).clamp(max=block_table.shape[1] - 1)
    slots = block_table[request.unsqueeze(1), block] * block_size + place % block_size
    kept = (offset < count.unsqueeze(1)) & valid.unsqueeze(1)
    rows_of = swa_indices.view(len(swa_indices), -1)
    rows_of[:num_tokens, :index_width] = slots.masked_fill(~kept, -1).to(swa_indices.dtype)
    swa_lens[:num_tokens] = count.masked_fill(~valid, 0).to(swa_lens.dtype)


def _chunks_and_prefixes_as_with_amx() -> None:
    """Without AMX tiles vLLM switches chunked prefill and prefix caching off, kernels aside."""
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config

    def checked(vllm_config):
        with mock.patch("torch.cpu._is_amx_tile_supported", return_value=True):
            check(vllm_config)

    CpuPlatform.check_and_update_config = staticmethod(checked)
