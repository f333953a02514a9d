"""The recipe section of the co-reference task."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from evalkit.core.recipe import Strict

Positive = Annotated[int, Field(gt=0)]


class CoreferenceConfig(Strict):
    """Co-reference cells: every number of equal requests at every length.

    Attributes:
        name: of the cells, ``<name>_<equal>@<length>``.
        equal: how often the asked request occurs in the conversation, each time with another
            answer; sample ``i`` asks for occurrence ``1 + i % equal``.
        lengths: whole prompt and answer in tokens, or prompt text in characters.
        unit: of the lengths. Tokens count the chat template and the answer's budget; characters
            count the text.
        samples: per cell.
        sentences: of a reply in the conversation.
        metric: ``prefixed_ratio`` (likeness of the text) or ``prefixed_exact`` (word for word).
        max_new_tokens: budget of the answer; 40 for every sentence and 16 more if not given.
        seed: of all samples.
    """

    kind: Literal["coreference"] = "coreference"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")] = "coreference"
    equal: tuple[Annotated[int, Field(ge=2, le=64)], ...] = Field(default=(2, 4, 8), min_length=1)
    lengths: tuple[Positive, ...] = Field(min_length=1)
    unit: Literal["tokens", "characters"] = "tokens"
    samples: Positive = 100
    sentences: Annotated[int, Field(ge=1, le=20)] = 3
    metric: Literal["prefixed_ratio", "prefixed_exact"] = "prefixed_ratio"
    max_new_tokens: Positive | None = None
    seed: int = 42

    @field_validator("equal", "lengths")
    @classmethod
    def _once(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) < len(values):
            raise ValueError("an entry occurs twice")
        return values
