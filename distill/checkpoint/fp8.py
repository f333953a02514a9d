"""FP8 block quantisation as DeepSeek and GLM ship it: a weight in e4m3 and one scale per block.

    w[i, j] ≈ q[i, j] · s[i // 128, j // 128],    s = max |w| of the block / 448

The scale tensor is called ``<weight>_scale_inv`` (fp32; DeepSeek-V3.2, GLM-5) or ``<module>.scale``
(e8m0, a power of two; DeepSeek-V4). Blocks at the right and lower edge may be smaller.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = (128, 128)
LARGEST = 448.0  # of e4m3 (finite, no infinities)


def dequantise(
    weight: Tensor,
    scale: Tensor,
    block: tuple[int, int] = BLOCK,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The weight [M, N] that e4m3 values [M, N] and scales [⌈M/b⌉, ⌈N/b⌉] stand for.

    Raises:
        ValueError: the scales do not fit the weight.
    """
    _check(weight, scale.shape, block)
    rows, columns = weight.shape
    wide = scale.float().repeat_interleave(block[0], 0)[:rows]
    wide = wide.repeat_interleave(block[1], 1)[:, :columns]
    return (weight.float() * wide).to(dtype)


def quantise(
    weight: Tensor,
    block: tuple[int, int] = BLOCK,
    scale_dtype: torch.dtype = torch.float32,
    *,
    power_of_two: bool = False,
) -> tuple[Tensor, Tensor]:
    """e4m3 values [M, N] and scales [⌈M/b⌉, ⌈N/b⌉] of a weight [M, N].

    Args:
        weight: to quantise.
        block: rows and columns that share a scale.
        scale_dtype: of the scales; e8m0 makes them powers of two.
        power_of_two: round scales up to a power of two (``scale_fmt: ue8m0``), so that nothing
            overflows.
    """
    rows, columns = weight.shape
    down, right = -rows % block[0], -columns % block[1]
    padded = pad(weight.float(), (0, right, 0, down))
    high, wide = padded.shape
    blocks = padded.view(high // block[0], block[0], wide // block[1], block[1])
    scale = blocks.abs().amax((1, 3)) / LARGEST
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    if power_of_two or scale_dtype == torch.float8_e8m0fnu:
        scale = torch.exp2(scale.log2().ceil())
    scale = scale.to(scale_dtype)
    shrunk = (blocks / scale.float()[:, None, :, None]).clamp(-LARGEST, LARGEST)
    values = shrunk.reshape(high, wide)[:rows, :columns].contiguous()
    return values.to(torch.float8_e4m3fn), scale


def _check(weight: Tensor, scale: torch.Size, block: tuple[int, int]) -> None:
    if weight.dim() != 2:
        raise ValueError(f"block scales are for matrices, not for {list(weight.shape)}")
    wanted = [-(-size // b) for size, b in zip(weight.shape, block, strict=True)]
    if list(scale) != wanted:
        raise ValueError(
            f"scales {list(scale)} do not fit a weight {list(weight.shape)} in blocks of"
            f" {block[0]}×{block[1]} (expected {wanted})"
        )
