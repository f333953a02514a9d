"""KL(teacher ‖ student) over the causal support.

    KL_t = Σ_s p[t,s] · (log p[t,s] − log q[t,s]),    q = softmax over the support of the scores

The teacher comes first (forward KL), as in the indexer warm-up of the DeepSeek-V3.2 report, in
IndexCache (arXiv 2603.12201, multi-layer distillation) and in MLI (arXiv 2611.03768, §3.3).

Several consumers: with p̄ the mean of their distributions,

    mean_c KL(p_c ‖ q) = mean_c Σ p_c log p_c − Σ p̄ log q

so p̄ and one number per query are all that is kept of them. The gradient is that of KL(p̄ ‖ q)
(IndexCache, proposition 1); the two values differ by a constant of the teacher.
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from distill.losses.base import Needs, Target


class KL(BaseModel):
    """``kind = "kl"``: mean over the consumers of KL(p_c ‖ q). It has no options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def needs(self, topk: int) -> Needs:  # noqa: ARG002
        """The consumers' mean distribution."""
        return Needs(mean=True)

    def __call__(self, scores: Tensor, target: Target, support: Tensor) -> tuple[Tensor, Tensor]:
        """See `distill.losses.base.Loss`."""
        return kl(
            target.mean, scores, support, information=target.information, weight=target.weight
        )


def self_information(target: Tensor) -> Tensor:
    """Σ_s p log p over the last dimension, 0 where p is 0: [..., T] to [...]."""
    products: Tensor = torch.special.xlogy(target, target)
    return products.sum(-1)


def kl(
    target: Tensor,
    scores: Tensor,
    support: Tensor,
    *,
    information: Tensor | None = None,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum over queries of KL(target ‖ softmax(scores)), and how many (or what weight) it holds.

    Args:
        target: teacher probabilities [..., T], 0 outside the support; each query's sum to 1.
        scores: the student's index scores [..., T] at the model's own scale; what stands outside
            the support is not read.
        support: bool, broadcastable to [..., T]: keys that a query may see.
        information: Σ p log p per query [...]; default: that of `target`. With the mean over
            consumers of their own, the result is the mean of their divergences.
        weight: of each query [...]; default 1.

    Returns:
        (sum, count) in the dtype of the scores, at least fp32. Queries without any visible key are
        in neither.
    """
    support = support.expand(scores.shape)
    real = support.any(-1)
    # Mask before the softmax, with a finite number: -inf would make NaN where all keys are masked.
    masked = scores.to(_precision(scores)).masked_fill(~support, torch.finfo(scores.dtype).min)
    log_q = torch.log_softmax(masked, dim=-1).masked_fill(~support, 0.0)
    target = target.to(log_q.dtype)
    information = self_information(target) if information is None else information
    rows = information.to(log_q.dtype) - (target * log_q).sum(-1)
    shares = real.to(log_q.dtype) if weight is None else weight.to(log_q.dtype) * real
    return (rows.masked_fill(~real, 0.0) * shares).sum(), shares.sum()


def _precision(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)
