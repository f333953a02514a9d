"""Which query positions train, and which of them are decode positions.

Where the lag acts in decode only, the selection of a full layer has two sets of readers: in
prefill the layers of its own segment, in decode those k full layers later. One indexer must serve
both, so both train it: every sequence is given a prompt length, positions before it are prefill
positions with the prefill consumers as teachers, positions after it decode positions with the
decode consumers, and the on-policy forward reads the sources of each position's phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.data.sampler import Stream, seeded_generator
from evalkit.dsa import Phase, ReuseSchedule

PHASES: tuple[Phase, ...] = ("prefill", "decode")
# A prompt takes up between these shares of the positions that have something to choose.
SHORTEST_PROMPT, LONGEST_PROMPT = 0.25, 0.9
_STREAMS = {"prefill": Stream.PREFILL_QUERIES, "decode": Stream.DECODE_QUERIES}


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Query positions of one phase.

    Attributes:
        phase: whose consumers teach these positions.
        positions: in rising order [B, R].
        weight: 1, or 0 where a sequence has too few positions [B, R].
    """

    phase: Phase
    positions: Tensor
    weight: Tensor

    def to(self, device: torch.device) -> QueryGroup:
        """The same on a device."""
        return QueryGroup(self.phase, self.positions.to(device), self.weight.to(device))


def has_two_phases(schedule: ReuseSchedule) -> bool:
    """Whether prefill and decode read different sources."""
    return schedule.sources("prefill") != schedule.sources("decode")


def sample_prompt_lengths(valid: Tensor, draws: Sequence[int], *, first: int, seed: int) -> Tensor:
    """Prompt length of each sequence [B].

    Args:
        valid: bool [B, S], True up to the padding.
        draws: number of the draw, per sequence.
        first: first position that may see more keys than it can select.
        seed: of the distillation.
    """
    lengths: list[int] = valid.sum(1).tolist()
    prompts = []
    for length, draw in zip(lengths, draws, strict=True):
        generator = seeded_generator(seed, draw, Stream.PROMPT_LENGTH)
        share = torch.rand(1, generator=generator).item()
        share = SHORTEST_PROMPT + share * (LONGEST_PROMPT - SHORTEST_PROMPT)
        prompts.append(min(length, first) + int(share * max(0, length - first)))
    return torch.tensor(prompts)


def decode_mask(prompt_lengths: Tensor, length: int) -> Tensor:
    """bool [B, S], True after the prompt."""
    return torch.arange(length)[None] >= prompt_lengths[:, None]


def sample_queries(
    valid: Tensor,
    draws: Sequence[int],
    *,
    first: int,
    count: int,
    seed: int,
    prompt_lengths: Tensor | None = None,
    decode_share: float = 0.5,
) -> list[QueryGroup]:
    """Query positions of some sequences, drawn evenly from those that have something to choose.

    Args:
        valid: bool [B, S].
        draws: number of the draw, per sequence.
        first: first position that may see more keys than it can select.
        count: positions per sequence.
        seed: of the distillation.
        prompt_lengths: from `sample_prompt_lengths`; None where both phases read the same sources.
        decode_share: share of `count` after the prompt.
    """
    ends = valid.sum(1)
    if prompt_lengths is None:
        return [_draw("prefill", torch.full_like(ends, first), ends, draws, count, seed)]
    late = min(count - 1, max(1, round(count * decode_share))) if count > 1 else 1
    starts = torch.minimum(torch.full_like(ends, first), ends)
    return [
        _draw("prefill", starts, prompt_lengths, draws, max(1, count - late), seed),
        _draw("decode", prompt_lengths, ends, draws, late, seed),
    ]


def _draw(
    phase: Phase, starts: Tensor, ends: Tensor, draws: Sequence[int], count: int, seed: int
) -> QueryGroup:
    positions = torch.zeros(len(draws), count, dtype=torch.long)
    weight = torch.zeros(len(draws), count)
    spans = zip(starts.tolist(), ends.tolist(), draws, strict=True)
    for i, (start, end, draw) in enumerate(spans):
        generator = seeded_generator(seed, draw, _STREAMS[phase])
        picked = torch.randperm(max(0, end - start), generator=generator)
        chosen = (picked[:count] + start).sort().values
        positions[i, : len(chosen)] = chosen
        positions[i, len(chosen) :] = chosen[-1] if len(chosen) else 0
        weight[i, : len(chosen)] = 1.0
    return QueryGroup(phase, positions, weight)
