"""Answers from the references, or corrupted ones at a stated rate: tests and dry runs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from pydantic import model_validator

from evalkit.config.arm import ArmConfig
from evalkit.config.engine import EngineKind
from evalkit.core.recipe import Strict
from evalkit.core.types import Completion, Prompt
from evalkit.dsa import ReuseSchedule
from evalkit.dsa.json_types import JsonValue


class OracleConfig(Strict):
    """Answers from the references, or corrupted ones: tests and dry runs without a model.

    Attributes:
        corrupt: share of wrong answers, for all arms or per arm name.
        seed: which samples are wrong.
    """

    kind: Literal["oracle"] = "oracle"
    corrupt: float | dict[str, float] = 0.0
    seed: int = 0

    @model_validator(mode="after")
    def _rates(self) -> OracleConfig:
        rates = self.corrupt.values() if isinstance(self.corrupt, dict) else [self.corrupt]
        if any(not 0 <= rate <= 1 for rate in rates):
            raise ValueError("corrupt is a share between 0 and 1")
        return self


class OracleEngine:
    """Answers every prompt correctly, but for a seeded share."""

    def __init__(self, config: OracleConfig) -> None:
        self.config = config
        self._native: ReuseSchedule | None = None

    def load(self, model: str) -> dict[str, JsonValue]:
        """Read the configuration (not the weights) of a checkpoint, for its schedule."""
        from evalkit.core.model_info import model_layout

        layout = model_layout(model)
        self._native = None if layout is None else layout.native
        model_type = None if layout is None else layout.model_type
        return {"weights_sha256": "oracle", "model_type": model_type}

    def native(self) -> ReuseSchedule | None:
        """The checkpoint's own schedule."""
        return self._native

    def answer(
        self,
        arm: ArmConfig,
        schedule: ReuseSchedule | None,  # noqa: ARG002 - a schedule does not change references
        prompts: Sequence[Prompt],
        done: Collection[str],
    ) -> Iterator[list[Completion]]:
        """One batch of right or wrong answers per 32 prompts."""
        rates = self.config.corrupt
        rate = rates.get(arm.name, 0.0) if isinstance(rates, dict) else rates
        left = [p for p in prompts if p.sample.id not in done]
        for start in range(0, len(left), 32):
            yield [self._complete(prompt, rate) for prompt in left[start : start + 32]]

    def engagement(self) -> dict[str, JsonValue]:
        """Nothing ran, so nothing is proved."""
        return {"verdict": "not applicable: the oracle runs no model"}

    def _complete(self, prompt: Prompt, rate: float) -> Completion:
        sample = prompt.sample
        digest = hashlib.sha256(f"{self.config.seed}/{sample.id}".encode()).digest()
        wrong = int.from_bytes(digest[:8], "big") / 2**64 < rate
        text = " (forgotten)" if wrong else " " + ", ".join(sample.references)
        return Completion(sample.id, text, "stop", len(prompt.token_ids), len(text.split()), 0.0)


def _check_arms(config: OracleConfig, arms: Sequence[ArmConfig]) -> None:
    names = [arm.name for arm in arms]
    for name in config.corrupt if isinstance(config.corrupt, dict) else ():
        if name not in names:
            raise ValueError(f"engine.corrupt {name} is not an arm ({', '.join(names)})")


KIND = EngineKind(config=OracleConfig, open=OracleEngine, check_arms=_check_arms)
