"""Log-probabilities of the tokens of texts, teacher-forced, with a KV cache and in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evalkit.core.records.likelihood import Likelihood
from evalkit.core.types import Prompt
from evalkit.dsa import AppliedSchedule
from evalkit.dsa.transformers_model import cache_argument
from evalkit.engines.hf.growing_cache import growing_cache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS = 2**27
"""Entries of the largest tensor of logits."""

TOP = 128
"""Likeliest tokens that are kept of a distribution."""

POSITIONS = 256
"""Distributions that are kept of a text at most, evenly spread over its scored tokens."""


@torch.inference_mode()
def read_texts(
    model: PreTrainedModel,
    batch: Sequence[Prompt],
    padded: tuple[Tensor, Tensor],
    positions: Tensor,
    applied: AppliedSchedule | None,
    chunk: int,
) -> list[Likelihood | None]:
    """What a model says of some texts.

    The tokens of a text that are not scored are prefill; the others are decode steps that happen
    to be fed in chunks, which gives what feeding them one by one gives.

    Args:
        model: a causal language model.
        batch: texts (`Sample.scored_from`).
        padded: their left-padded ids and mask [B, S].
        positions: of their tokens [B, S].
        applied: the schedule in force.
        chunk: tokens per forward at most.

    Returns:
        one for each, in order; None where a logit is not finite.
    """
    ids, mask = padded
    rows = [_Row(ids[i], ids.shape[1] - len(p.token_ids), p) for i, p in enumerate(batch)]
    first = torch.tensor([p.sample.scored_from for p in batch], device=ids.device)
    decoded = positions >= first.unsqueeze(1)
    cache = growing_cache(model)
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    step = max(1, min(chunk, LOGITS // (len(batch) * vocabulary)))
    for start in range(0, ids.shape[1], step):
        end = min(start + step, ids.shape[1])
        if applied is not None:
            applied.decode_rows = decoded[:, start:end]
        try:
            logits = model(
                input_ids=ids[:, start:end],
                attention_mask=mask[:, :end],
                position_ids=positions[:, start:end],
                use_cache=True,
                **{cache_argument(model): cache},
            ).logits
        finally:
            if applied is not None:
                applied.decode_rows = None
        for row, of_row in zip(rows, logits, strict=True):
            row.take(of_row, start)
    return [row.likelihood() for row in rows]


@dataclass
class _Row:
    """One text while it is read.

    Attributes:
        ids: [S] its tokens, padding in front.
        pad: how much padding.
        prompt: the text.
        parts: log-probabilities of the scored tokens, ids and log-probabilities of the likeliest.
    """

    ids: Tensor
    pad: int
    prompt: Prompt
    parts: tuple[list[Tensor], list[Tensor], list[Tensor]] = field(
        default_factory=lambda: ([], [], [])
    )

    def __post_init__(self) -> None:
        scored = len(self.prompt.token_ids) - self.prompt.sample.scored_from
        self.kept = np.arange(0, scored, -(-scored // POSITIONS))

    def take(self, logits: Tensor, start: int) -> None:
        """The scored tokens that a chunk predicts.

        Args:
            logits: [s, vocabulary]; those at position i predict token i + 1.
            start: position of the first.
        """
        begin = self.pad + self.prompt.sample.scored_from - 1  # predicts the first scored token
        low, high = max(start, begin), min(start + len(logits), len(self.ids) - 1)
        if low >= high:
            return
        logp = logits[low - start : high - start].float().log_softmax(-1)
        logprobs, ids, values = self.parts
        logprobs.append(logp.gather(1, self.ids[low + 1 : high + 1, None])[:, 0].cpu())
        here = self.kept[(self.kept >= low - begin) & (self.kept < high - begin)] - (low - begin)
        top = logp[torch.as_tensor(here, device=logp.device)].topk(min(TOP, logp.shape[-1]))
        ids.append(top.indices.cpu())
        values.append(top.values.cpu())

    def likelihood(self) -> Likelihood | None:
        """What was read; None where it is not finite."""
        logprobs, ids, values = (torch.cat(part) for part in self.parts)
        if not (torch.isfinite(logprobs).all() and torch.isfinite(values).all()):
            return None
        return Likelihood(
            logprobs.double().numpy(),
            self.kept,
            ids.numpy().astype(np.int32),
            values.numpy().astype(np.float32),
        )
