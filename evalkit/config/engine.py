"""The `[engine]` section of a recipe: what answers the prompts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from evalkit.config.server import CLIENT_FIELDS, OpenAIServerConfig
from evalkit.core.recipe import Strict


class HfConfig(Strict):
    """Transformers in this process, greedy decoding.

    Attributes:
        dtype: weights and activations; ``auto`` takes the checkpoint's.
        batch_tokens: padded tokens of a batch (prompt and answer).
        max_batch: prompts of a batch.
        prefill_chunk: prompt tokens per forward; bounds the memory of long prompts.
        indexer: ``library`` runs the installed transformers code; ``chunked`` selects by our own
            scores, in memory linear in the length and faster, equal up to rounding at the border.
        device_map: passed to transformers (``"auto"`` spreads a large model), else one device
            that accelerate chooses.
    """

    kind: Literal["hf"] = "hf"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_tokens: int = Field(default=32768, ge=1)
    max_batch: int = Field(default=64, ge=1)
    prefill_chunk: int = Field(default=2048, ge=1)
    indexer: Literal["library", "chunked"] = "library"
    device_map: str | None = None


class OracleConfig(Strict):
    """Answers from the gold, or from a corrupted gold: tests and dry runs without a model.

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


EngineConfig = Annotated[HfConfig | OracleConfig | OpenAIServerConfig, Field(discriminator="kind")]


# Fields that change how fast an engine works and not what it answers; they leave the identity.
THROUGHPUT_FIELDS = CLIENT_FIELDS | {"batch_tokens", "max_batch", "prefill_chunk", "device_map"}
