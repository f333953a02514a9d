"""The recipe section of the engine that runs transformers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

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
        attention: ``sparse`` gathers the selected keys, in memory and time by their number; models
            whose attention takes no positions (DeepSeek-V4, glm5_next, models without indexers)
            stay at ``library``, which masks all other keys. Equal up to rounding; facts of the run
            say which one ran.
        device_map: passed to transformers (``"auto"`` spreads a large model), else one device
            that accelerate chooses.
    """

    kind: Literal["hf"] = "hf"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_tokens: int = Field(default=32768, ge=1)
    max_batch: int = Field(default=64, ge=1)
    prefill_chunk: int = Field(default=2048, ge=1)
    indexer: Literal["library", "chunked"] = "library"
    attention: Literal["sparse", "library"] = "sparse"
    device_map: str | None = None
