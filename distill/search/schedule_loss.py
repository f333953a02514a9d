"""The loss of a schedule on fixed text: what a search compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from distill.data.batch import Batch
from distill.errors import require_finite
from distill.models.activation_cache import ActivationCache
from distill.models.causal_lm import CausalLM, decoder_config_of
from distill.validation.logit_kl import CHUNK_LOGITS, divergence
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.families.sites import indexer_sites
from evalkit.dsa.selection import SelectionPolicy


class ScheduleLoss:
    """Mean loss of schedules on fixed batches.

    Attributes:
        cache: the model's activations on them under the committed schedule.
    """

    def __init__(
        self,
        model: CausalLM,
        batches: Sequence[Batch],
        criterion: Literal["lm_loss", "logit_kl"],
        policy: SelectionPolicy | None = None,
    ) -> None:
        self._model, self._batches = model, list(batches)
        rows = [_second_half(batch) for batch in self._batches]
        self.cache = ActivationCache(model, self._batches, rows, policy)
        self._original: list[Tensor] | None = None
        if criterion == "logit_kl":
            native = indexer_sites(model).layout.native
            original = self.cache if policy is None else ActivationCache(model, batches, rows)
            original.commit(native)
            self._original = [
                original.final_hidden_states(native, n)[b.valid].cpu()
                for n, b in enumerate(self._batches)
            ]

    def mean(self, schedule: ReuseSchedule) -> float:
        """Over predicted tokens (positions, of the divergence), under a schedule."""
        total, count = 0.0, 0
        for number, batch in enumerate(self._batches):
            hidden = self.cache.final_hidden_states(schedule, number)
            if self._original is None:
                losses = next_token_loss(self._model, hidden, batch)
            else:
                after = hidden[batch.valid]
                head = self._model.get_output_embeddings()
                losses = divergence(head, self._original[number].to(after), after)
            total += float(losses.double().sum())
            count += len(losses)
        return total / max(count, 1)


@torch.no_grad()
def next_token_loss(model: CausalLM, hidden: Tensor, batch: Batch) -> Tensor:
    """Cross entropy of every predicted token, from final hidden states [B, S, hidden]: fp32 [N].

    Raises:
        NonFiniteError: one is NaN or infinite.
    """
    head = model.get_output_embeddings()
    predicts = batch.valid[:, 1:]
    states, targets = hidden[:, :-1][predicts], batch.ids[:, 1:][predicts]
    size = max(1, CHUNK_LOGITS // decoder_config_of(model).vocab_size)
    chunks = zip(torch.split(states, size), torch.split(targets, size), strict=True)
    parts = [
        torch.nn.functional.cross_entropy(head(chunk).float(), target, reduction="none").cpu()
        for chunk, target in chunks
    ]
    losses = torch.cat(parts)
    require_finite(losses, "loss on the next token")
    return losses


def _second_half(batch: Batch) -> Tensor:
    """bool [B, S]: the positions that count as decode positions."""
    middle = batch.valid.sum(1, keepdim=True) // 2
    return torch.arange(batch.ids.shape[1], device=batch.ids.device)[None] >= middle
