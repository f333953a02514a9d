"""Train state: what a training loop remembers between steps, besides tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from distill.init.candidates import CandidateChoice

UNDISTILLED_IS_NEARER = (
    "on held-out text the undistilled arm is nearer to the original: keep that one"
)


@dataclass(slots=True)
class TrainState:
    """What a training loop remembers between steps, besides tensors.

    Attributes:
        step: steps done.
        best: score of the best evaluation so far; lower is better.
        best_step: where it was.
        without_improvement: evaluations since then.
        before: metrics of the undistilled arm.
        after: metrics of the best students.
        choices: of the closed form.
        seconds: of work, interruptions left out.
    """

    step: int = 0
    best: float = math.inf
    best_step: int = 0
    without_improvement: int = 0
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    choices: list[CandidateChoice] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the evaluations say against the result."""
        after, before = self.after.get("logit_kl", 0.0), self.before.get("logit_kl", 0.0)
        return (UNDISTILLED_IS_NEARER,) if after > before else ()

    def record(self) -> dict[str, object]:
        """As JSON values; `from_record` is the inverse."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TrainState:
        """The state of a record, of version 0.1 too.

        Raises:
            TypeError, KeyError: it has other fields.
        """
        values = {"without_improvement" if k == "since" else k: v for k, v in record.items()}
        choices = [CandidateChoice(**choice) for choice in values.pop("choices")]
        return cls(**values, choices=choices)
