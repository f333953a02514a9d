"""What a training loop remembers, and its small arithmetic."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from distill.config.train import TrainConfig

UNDISTILLED_IS_NEARER = (
    "on held-out text the undistilled arm is nearer to the original: keep that one"
)


@dataclass(slots=True)
class Progress:
    """What the loop remembers between steps, besides tensors.

    Attributes:
        step: steps done.
        best: the best look so far, as a number that falls.
        best_step: where it was.
        since: looks without improvement.
        before: the look at the undistilled arm.
        after: the look at the best students.
        choices: of the closed form.
        seconds: of work, interruptions left out.
    """

    step: int = 0
    best: float = math.inf
    best_step: int = 0
    since: int = 0
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    choices: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the looks say against the result."""
        after, before = (look.get("logit_kl", 0.0) for look in (self.after, self.before))
        return (UNDISTILLED_IS_NEARER,) if after > before else ()


def learning_rate(step: int, train: TrainConfig) -> float:
    """Linear warm-up, the peak, then linear decay over the last share of the steps."""
    up = min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    left = (1.0 - step / train.steps) / train.decay if train.decay else 1.0
    return train.lr * up * min(1.0, max(train.floor, left))


def clip(parameters: list[nn.Parameter], bound: float) -> float:
    """Norm of some gradients; scales them down to the bound where they exceed it."""
    limit = bound if bound > 0 else math.inf
    return float(nn.utils.clip_grad_norm_(parameters, limit))


def drop_after(path: Path, step: int) -> None:
    """Forget what was logged behind the state that training goes on from."""
    if not path.is_file():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # torn by the kill
        if row.get("step", 0) <= step:
            kept.append(line)
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
