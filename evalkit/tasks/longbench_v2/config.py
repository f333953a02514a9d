"""The recipe section of LongBench v2."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from evalkit.core.recipe import Strict

Mode = Literal["0shot", "0shot_cot", "0shot_no_context", "0shot_rag"]
DESCRIPTIONS: dict[Mode, str] = {
    "0shot": "503 multiple-choice questions on long texts, answered at once",
    "0shot_cot": "the same, reasoned about in a first call, answered in a second",
    "0shot_no_context": "the same without the text: what is known or guessed",
    "0shot_rag": "the same on retrieved pieces of the text",
}
"""The official ways to ask; names are those of the prompt files."""

LENGTHS = ("short", "medium", "long")
Length = Literal["short", "medium", "long"]
Positive = Annotated[int, Field(gt=0)]


class LongBenchV2Config(Strict):
    """LongBench v2.

    Attributes:
        modes: ways to ask, one cell each.
        max_length: tokens of the filled prompt that are kept, special tokens included; longer
            prompts lose their middle before any chat template. Officially 120000 for models with
            a window of 128k.
        lengths: only questions on texts of these lengths; default: all 503.
        retrieved: pieces per question in ``0shot_rag``, the best first.
        data: ``data.json`` beside the recipe, or a folder that has it; default: the pinned file.
        prompts: folder of the official prompt files, beside the recipe; default: the pinned ones.
        max_new_tokens: budget of the answer (officially 128).
        max_reasoning_tokens: budget of the first call of ``0shot_cot`` (officially 1024).
        malformed: ``refuse`` data with a malformed record, or ``skip`` the record and say so.
    """

    kind: Literal["longbench_v2"] = "longbench_v2"
    modes: Annotated[tuple[Mode, ...], Field(min_length=1)] = ("0shot",)
    max_length: Annotated[int, Field(ge=2)] | None = None
    lengths: Annotated[tuple[Length, ...], Field(min_length=1)] | None = None
    retrieved: Positive | None = None
    data: str | None = None
    prompts: str | None = None
    max_new_tokens: Positive = 128
    max_reasoning_tokens: Positive = 1024
    malformed: Literal["refuse", "skip"] = "refuse"

    @field_validator("modes", "lengths")
    @classmethod
    def _once(cls, values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if values is not None and len(set(values)) < len(values):
            raise ValueError("an entry occurs twice")
        return values

    @model_validator(mode="after")
    def _complete(self) -> LongBenchV2Config:
        if self.max_length is None:
            raise ValueError(
                "max_length is missing: tokens of a prompt that are kept, the model's window less"
                " room for the chat template and the answer (officially 120000 of 128k)"
            )
        if ("0shot_rag" in self.modes) != (self.retrieved is not None):
            raise ValueError("retrieved goes with the mode 0shot_rag, and only with it")
        return self

    @property
    def limit(self) -> int:
        """`max_length`, which is always given."""
        return self.max_length or 0
