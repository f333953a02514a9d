"""Which query rows train, and which of them are decode rows.

Where the lag acts in decode only, the selection of a full layer has two sets of readers: in
prefill the layers of its own segment, in decode those k full layers later. One indexer must serve
both, so both train it: every sequence is given a prompt boundary, rows before it are prefill rows
with the prefill consumers as teachers, rows behind it decode rows with the decode consumers, and
the on-policy forward reads the sources of each row's phase.

Draws depend on (seed, number of the draw) alone: not on processes, micro-batches or what ran
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evalkit.dsa import Phase, ReuseSchedule

# A prompt takes up between these shares of the rows that have something to choose.
SHORTEST_PROMPT, LONGEST_PROMPT = 0.25, 0.9


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of one phase.

    Attributes:
        phase: whose consumers teach these rows.
        rows: row numbers in rising order [B, R].
        weight: 1, or 0 where a sequence has too few rows [B, R].
    """

    phase: Phase
    rows: Tensor
    weight: Tensor


def two_phases(schedule: ReuseSchedule) -> bool:
    """Whether prefill and decode read different sources."""
    return schedule.sources("prefill") != schedule.sources("decode")


def boundaries(valid: Tensor, draws: Sequence[int], *, first: int, seed: int) -> Tensor:
    """Prompt length of each sequence [B].

    Args:
        valid: bool [B, S], True up to the padding.
        draws: number of the draw, per sequence.
        first: first row that has more visible keys than it may select.
        seed: of the distillation.
    """
    lengths = valid.sum(1).tolist()
    result = []
    for length, draw in zip(lengths, draws, strict=True):
        share = torch.rand(1, generator=generator(seed, draw, 1)).item()
        share = SHORTEST_PROMPT + share * (LONGEST_PROMPT - SHORTEST_PROMPT)
        result.append(min(int(length), first) + int(share * max(0, length - first)))
    return torch.tensor(result)


def decode_mask(prompts: Tensor, length: int) -> Tensor:
    """bool [B, S], True behind the prompt."""
    return torch.arange(length)[None] >= prompts[:, None]


def row_groups(
    valid: Tensor,
    draws: Sequence[int],
    *,
    first: int,
    count: int,
    seed: int,
    prompts: Tensor | None = None,
    decode_share: float = 0.5,
) -> list[RowGroup]:
    """Rows drawn for some sequences, evenly over those that have something to choose.

    Args:
        valid: bool [B, S].
        draws: number of the draw, per sequence.
        first: first row that has more visible keys than it may select.
        count: rows per sequence.
        seed: of the distillation.
        prompts: from `boundaries`; None where both phases read the same sources.
        decode_share: share of `count` behind the prompt.
    """
    ends = valid.sum(1)
    if prompts is None:
        return [_draw("prefill", torch.full_like(ends, first), ends, draws, count, seed)]
    late = min(count - 1, max(1, round(count * decode_share))) if count > 1 else 1
    starts = torch.minimum(torch.full_like(ends, first), ends)
    return [
        _draw("prefill", starts, prompts, draws, max(1, count - late), seed),
        _draw("decode", prompts, ends, draws, late, seed),
    ]


def _draw(
    phase: Phase, starts: Tensor, ends: Tensor, draws: Sequence[int], count: int, seed: int
) -> RowGroup:
    rows = torch.zeros(len(draws), count, dtype=torch.long)
    weight = torch.zeros(len(draws), count)
    spans = zip(starts.tolist(), ends.tolist(), draws, strict=True)
    for i, (start, end, draw) in enumerate(spans):
        stream = 2 if phase == "prefill" else 3
        picked = torch.randperm(max(0, end - start), generator=generator(seed, draw, stream))
        chosen = (picked[:count] + start).sort().values
        rows[i, : len(chosen)] = chosen
        rows[i, len(chosen) :] = chosen[-1] if len(chosen) else 0
        weight[i, : len(chosen)] = 1.0
    return RowGroup(phase, rows, weight)


def generator(seed: int, draw: int, stream: int) -> torch.Generator:
    """A random stream of its own for every draw and purpose."""
    mixed = (seed * 1_000_003 + draw) * 1_000_003 + stream
    return torch.Generator().manual_seed(mixed % (2**63 - 1))
