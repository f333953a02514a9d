"""Index keys and queries in low precision, with a scale per block of channels.

As DeepSeek's kernels round them (`act_quant` and `fp4_act_quant` of the inference code beside the
weights of DeepSeek-V3.2 and V4): after a Hadamard rotation, which changes no product in exact
arithmetic,

    fp8: blocks of 128 channels, scale s = max(amax, 1e-4) / 448, values e4m3(x / s);
    fp4: blocks of 32 channels, scale s = max(amax, 6 · 2^-126) / 6, values e2m1(x / s).

Scales are rounded up to a power of two (ue8m0, `scale_fmt` of both); fp8 with `scales = "fp32"`
keeps them as they are. Products and their sum are in fp32, head weights are not rounded.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Literal

import torch
from pydantic import SerializerFunctionWrapHandler, model_serializer
from torch import Tensor

from evalkit.config.selection import Selection
from evalkit.dsa.features import IndexFeatures
from evalkit.dsa.selection import REFERENCE_BITS

Format = Literal["unrounded", "fp8", "fp4"]
BITS: dict[Format, int] = {"unrounded": REFERENCE_BITS, "fp8": 8, "fp4": 4}


class Rounding(Selection):
    """A policy that may see rounded keys and queries.

    Attributes:
        keys: their format.
        queries: likewise.
        scales: of fp8; those of fp4 are powers of two always.
        rotate: turn both by a Hadamard matrix before rounding; where the channels are no power of
            two, in blocks of the largest one that divides them.
    """

    keys: Format = "unrounded"
    queries: Format = "unrounded"
    scales: Literal["ue8m0", "fp32"] = "ue8m0"
    rotate: bool = True

    def rounded(self, features: IndexFeatures) -> IndexFeatures:
        """What rounding leaves; the features themselves where nothing is rounded."""
        if not self._rounds:
            return features
        query, key = features.query, features.key
        if self.rotate:
            query, key = rotated(query), rotated(key)
        return replace(features, query=self._near(query, self.queries), key=self.as_keys(key))

    def as_keys(self, x: Tensor) -> Tensor:
        """Vectors [..., d] in the format of the keys; they are turned already."""
        return self._near(x, self.keys)

    def _near(self, x: Tensor, kind: Format) -> Tensor:
        if kind == "unrounded":
            return x
        with torch.no_grad():
            near = fp8(x, powers=self.scales == "ue8m0") if kind == "fp8" else fp4(x)
        return near + (x - x.detach()) if x.requires_grad else near  # straight through: x - x is 0

    @property
    def _rounds(self) -> bool:
        return not self.keys == self.queries == "unrounded"

    @property
    def key_bits(self) -> int:
        """Of the format of the keys."""
        return BITS[self.keys]

    @model_serializer(mode="wrap")
    def _behind_its_kind(self, whole: SerializerFunctionWrapHandler) -> dict[str, object]:
        """These settings last, and only where they do anything: a record names what was done."""
        data: dict[str, object] = whole(self)
        settings = {name: data.pop(name) for name in Rounding.model_fields if name in data}
        return {**data, **settings} if self._rounds else data


def rotated(x: Tensor) -> Tensor:
    """Channels [..., d] turned by an orthonormal Hadamard matrix, in blocks of a power of two."""
    channels = x.shape[-1]
    size = channels & -channels
    blocks = x.reshape(*x.shape[:-1], channels // size, size)
    turned = blocks @ _hadamard(size).to(x.device, x.dtype)
    return turned.flatten(-2)


@cache
def _hadamard(size: int) -> Tensor:
    """Sylvester's, scaled: [size, size], size a power of two."""
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < size:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return matrix / math.sqrt(size)


def fp8(x: Tensor, *, powers: bool, block: int = 128) -> Tensor:
    """Channels [..., d] rounded to e4m3 with one scale a block, and back."""
    blocks, channels = _blocks(x, block)
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0
    scale = _power_above(scale) if powers else scale
    values = (blocks / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).to(x.dtype)
    return (values * scale).flatten(-2)[..., :channels]


def fp4(x: Tensor, *, block: int = 32) -> Tensor:
    """Channels [..., d] rounded to e2m1 with one power of two a block, and back."""
    blocks, channels = _blocks(x, block)
    scale = _power_above(blocks.abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-126) / 6.0)
    values = _e2m1((blocks / scale).clamp(-6.0, 6.0))
    return (values * scale).flatten(-2)[..., :channels]


def _e2m1(x: Tensor) -> Tensor:
    """The nearest of ±{0, 1/2, 1, 3/2, 2, 3, 4, 6}; of two as near, the one with an even code."""
    levels = x.new_tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    middles = (levels[1:] + levels[:-1]) / 2
    low, high = torch.bucketize(x.abs(), middles), torch.bucketize(x.abs(), middles, right=True)
    return levels[torch.where(low % 2 == 0, low, high)].copysign(x)


def _power_above(x: Tensor) -> Tensor:
    """The smallest power of two that is no smaller, of positive numbers."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.ones_like(x), torch.where(mantissa == 0.5, exponent - 1, exponent))


def _blocks(x: Tensor, block: int) -> tuple[Tensor, int]:
    """Channels in blocks [..., n, block], zeros behind the last; and how many there are."""
    channels = x.shape[-1]
    block = min(block, channels)
    filled = torch.nn.functional.pad(x, (0, -channels % block))
    count = filled.shape[-1] // block
    return filled.reshape(*x.shape[:-1], count, block), channels
