"""The recipe section of the needle task."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from evalkit.core.recipe import Strict
from evalkit.tasks.common.word_streams import WordSource

Positive = Annotated[int, Field(gt=0)]
Length = Annotated[int, Field(gt=0, le=2**24)]
Percent = Annotated[float, Field(ge=0, le=100)]


class Spacing(Strict):
    """Depths from 0 to 100 by name.

    Attributes:
        spacing: ``linear`` (whole percents), or ``sigmoid``, denser near both ends; the two ways
            of the original needle test (github.com/gkamradt/LLMTest_NeedleInAHaystack).
        count: how many, both ends included.
    """

    spacing: Literal["linear", "sigmoid"] = "linear"
    count: Annotated[int, Field(ge=2)]

    def depths(self) -> tuple[float, ...]:
        """Percents in growing order."""
        even = [100 * i / (self.count - 1) for i in range(self.count)]
        if self.spacing == "linear":
            return tuple(float(round(x)) for x in even)
        inner = (round(100 / (1 + math.exp(-0.1 * (x - 50))), 3) for x in even[1:-1])
        return (0.0, *inner, 100.0)


class NeedleConfig(Strict):
    """Needle cells, one for every length; depths and repeats are its samples.

    Attributes:
        name: of the cells, ``<name>@<length>``.
        lengths: whole prompt and answer in tokens, or prompt text in characters.
        unit: of the lengths. Tokens count the chat template and the answer's budget; characters
            count the text and the answer prefix, so that they need no tokenizer.
        depths: where the (first) asked needle stands, in percent of the haystack's units.
        repeats: samples per length and depth, each with keys and values of its own.
        needles: sentences put into the haystack.
        asked: how many of them are asked in one question.
        haystack: ``filler`` (ten plain sentences again and again), ``needles`` (sentences about
            other keys), ``essays`` (Paul Graham) or ``file``.
        path: text file of the haystack ``file``, beside the recipe.
        haystacks: different haystacks per length, which the repeats share out, each read at every
            depth; samples that share one are one cluster. If not given, every sample has a
            haystack of its own (an order or a cut of its own), so that it counts by itself.
        value: ``digits`` or ``uuid``.
        value_digits: digits of a value.
        key_adjectives: words of the keys instead of wonderwords', or a path beside the recipe.
        key_nouns: likewise.
        max_new_tokens: budget of the answer; 48 for every value asked if not given.
        seed: of all samples.
    """

    kind: Literal["needle"] = "needle"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")] = "needle"
    lengths: tuple[Length, ...] = Field(min_length=1)
    unit: Literal["tokens", "characters"] = "tokens"
    depths: Annotated[tuple[Percent, ...], Field(min_length=1)] | Spacing = (0, 25, 50, 75, 100)
    repeats: Positive = 1
    needles: Positive = 1
    asked: Positive = 1
    haystack: Literal["filler", "needles", "essays", "file"] = "filler"
    path: str | None = None
    haystacks: Positive | None = None
    value: Literal["digits", "uuid"] = "digits"
    value_digits: Annotated[int, Field(ge=1, le=18)] = 7
    key_adjectives: WordSource | None = None
    key_nouns: WordSource | None = None
    max_new_tokens: Positive | None = None
    seed: int = 42

    @field_validator("lengths", "depths")
    @classmethod
    def _once(cls, values: object) -> object:
        if isinstance(values, tuple) and len(set(values)) < len(values):
            raise ValueError("an entry occurs twice")
        return values

    @model_validator(mode="after")
    def _consistent(self) -> NeedleConfig:
        if self.asked > self.needles:
            raise ValueError(f"asked is {self.asked}, but needles only {self.needles}")
        if (self.haystack == "file") != (self.path is not None):
            raise ValueError("path goes with haystack = 'file', and only with it")
        if self.haystacks is not None and self.haystacks > self.repeats:
            raise ValueError(
                f"haystacks is {self.haystacks}, but only {self.repeats} repeats share them out"
            )
        return self

    def percents(self) -> tuple[float, ...]:
        """The depths as numbers."""
        return self.depths.depths() if isinstance(self.depths, Spacing) else self.depths
