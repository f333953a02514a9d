"""AdamW over indexers, its learning-rate schedule, and gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from distill.config.train import TrainConfig
from distill.errors import NonFiniteError, require_finite

BETAS = (0.9, 0.98)


def adamw(parameters: Iterable[nn.Parameter], train: TrainConfig) -> torch.optim.AdamW:
    """The optimiser of a recipe."""
    return torch.optim.AdamW(parameters, lr=train.lr, betas=BETAS, weight_decay=train.weight_decay)


def learning_rate(step: int, train: TrainConfig) -> float:
    """Linear warm-up, the peak, then linear decay over the last share of the steps."""
    up = min(1.0, (step + 1) / train.warmup_steps) if train.warmup_steps else 1.0
    left = (1.0 - step / train.steps) / train.decay_ratio if train.decay_ratio else 1.0
    return train.lr * up * min(1.0, max(train.min_lr_ratio, left))


def begin_step(optimizer: torch.optim.Optimizer, step: int, train: TrainConfig) -> float:
    """Set the learning rate of a step and drop the gradients; returns the rate."""
    rate = learning_rate(step, train)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    return rate


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> float:
    """Norm of some gradients; scales them down to `max_norm` where they exceed it (0: never).

    Raises:
        NonFiniteError: the norm is NaN or infinite.
    """
    limit = max_norm if max_norm > 0 else math.inf
    norm = float(nn.utils.clip_grad_norm_(parameters, limit))
    if not math.isfinite(norm):
        raise NonFiniteError(f"the norm of its gradient is {norm}; lower train.lr")
    return norm


def require_finite_parameters(named: Mapping[str, Tensor]) -> None:
    """Refuse what an optimiser step has left NaN or infinite.

    Raises:
        NonFiniteError: names the tensor.
    """
    for name, parameter in named.items():
        require_finite(parameter, f"{name} after the step (lower train.lr)")
