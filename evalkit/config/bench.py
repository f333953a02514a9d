"""The `[bench]` section of a recipe: one load, the same for every arm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, model_validator

from evalkit.config.server import check_extra_body
from evalkit.core.recipe import Strict


def _ignore_eos() -> dict[str, JsonValue]:
    return {"ignore_eos": True}


class BenchConfig(Strict):
    """A load with fixed lengths.

    Attributes:
        input_tokens: of every prompt.
        output_tokens: of every answer; `extra_body` makes servers go on to the end.
        requests: measured requests of a round.
        concurrency: the most in flight.
        rate: requests per second that arrive; None: as fast as `concurrency` lets them.
        arrival: ``poisson`` or ``fixed`` distances, where there is a rate.
        warmup: requests before every round, not measured.
        rounds: of every arm; arms take turns round by round.
        prompts: ``tokens`` are seeded random tokens, ``text`` stretches of `text_file`.
        text_file: real text.
        seed: of prompts and arrivals.
        cards: accelerators of the servers of one arm together.
        extra_body: further fields of every request.
        max_drift: largest difference of the baseline's first and last speed; beyond it no speeds
            are compared.
        confidence: of the intervals.
        resamples: bootstrap resamples.
    """

    input_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=2)
    requests: int = Field(default=64, ge=1)
    concurrency: int = Field(default=8, ge=1)
    rate: float | None = Field(default=None, gt=0)
    arrival: Literal["poisson", "fixed"] = "poisson"
    warmup: int = Field(default=4, ge=0)
    rounds: int = Field(default=1, ge=1)
    prompts: Literal["tokens", "text"] = "tokens"
    text_file: str | None = None
    seed: int = 0
    cards: int = Field(default=1, ge=1)
    extra_body: dict[str, JsonValue] = Field(default_factory=_ignore_eos)
    max_drift: float = Field(default=0.02, ge=0)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    resamples: int = Field(default=2000, ge=100)

    @model_validator(mode="after")
    def _body(self) -> BenchConfig:
        check_extra_body(self.extra_body)
        return self

    @model_validator(mode="after")
    def _text(self) -> BenchConfig:
        if (self.prompts == "text") != (self.text_file is not None):
            raise ValueError("bench.prompts = text and bench.text_file go together")
        return self
