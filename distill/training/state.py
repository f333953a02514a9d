"""Train state: what a training loop remembers between steps, besides tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from distill.init.candidates import CandidateChoice

UNDISTILLED_IS_NEARER = (
    "on held-out text the undistilled arm is nearer to the original: keep that one"
)
NOTHING_GAINED = "nothing gained: on held-out text the undistilled arm is as good or better"
AS_TRAINED, AS_IT_CAME = "as trained", "as it came"

Measure = Literal["logit_kl", "recall"]
_KEYS: dict[Measure, str] = {"logit_kl": "logit_kl_tail", "recall": "recall"}


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
        first_layer: the criterion with the first full layer as trained and as it came, where
            `student.first_layer` leaves that open; the lower one was kept.
        seconds: of work, interruptions left out.
    """

    step: int = 0
    best: float = math.inf
    best_step: int = 0
    without_improvement: int = 0
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    choices: list[CandidateChoice] = field(default_factory=list)
    first_layer: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def first_layer_came_back(self) -> bool:
        """Whether the first full layer trained and was then left as it came."""
        scores = self.first_layer
        return bool(scores) and scores[AS_IT_CAME] <= scores[AS_TRAINED]

    def compared(self, measure: Measure) -> tuple[float, float]:
        """The measure of the undistilled arm and of the best students; NaN where not measured."""
        key = _KEYS[measure]
        return self.before.get(key, math.nan), self.after.get(key, math.nan)

    def gains(self, measure: Measure) -> bool:
        """Whether the best students beat the undistilled arm by what chose them (`choice`)."""
        before, after = self.compared(measure)
        return after > before if measure == "recall" else after < before

    def warnings(self, measure: Measure) -> tuple[str, ...]:
        """What the evaluations say against the result."""
        after, before = self.after.get("logit_kl", 0.0), self.before.get("logit_kl", 0.0)
        nothing = () if self.gains(measure) else (NOTHING_GAINED,)
        return (*nothing, UNDISTILLED_IS_NEARER) if after > before else nothing

    def record(self) -> dict[str, object]:
        """As JSON values; `from_record` is the inverse."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TrainState:
        """The state of a record, of version 0.1 too.

        Raises:
            TypeError, KeyError, ValueError: it has other fields, or values of other types.
        """
        values = {"without_improvement" if k == "since" else k: v for k, v in record.items()}
        choices = [CandidateChoice(**choice) for choice in values.pop("choices")]
        state = cls(**values, choices=choices)
        try:
            TypeAdapter(cls).validate_python(asdict(state))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{place}: {first['msg']}") from None
        return state
