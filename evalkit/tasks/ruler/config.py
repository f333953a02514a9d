"""The recipe section of RULER."""

from __future__ import annotations

import difflib
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from evalkit.core.recipe import Strict
from evalkit.tasks.common.word_streams import WordSource

DESCRIPTIONS = {
    "niah_single_1": "one needle (word: number) in repeated noise",
    "niah_single_2": "one needle (word: number) in essays",
    "niah_single_3": "one needle (word: uuid) in essays",
    "niah_multikey_1": "four needles in essays, one asked",
    "niah_multikey_2": "a haystack of needles (word: number), one asked",
    "niah_multikey_3": "a haystack of needles (uuid: uuid), one asked",
    "niah_multivalue": "four values of one key in essays, all asked",
    "niah_multiquery": "four needles in essays, all asked",
    "vt": "variable tracking: a chain of four assignments in noise",
    "cwe": "the ten common words of a numbered list",
    "fwe": "the three most frequent coded words",
    "qa_1": "SQuAD questions among distractor paragraphs",
    "qa_2": "HotpotQA questions among distractor paragraphs",
}
"""The official tasks; their parameters and wording are read from the pinned package."""

NAMES = tuple(DESCRIPTIONS)

WORD_KEYS = tuple(name for name in NAMES if name.startswith("niah") and name != "niah_multikey_3")
NUMBER_VALUES = tuple(name for name in WORD_KEYS if name != "niah_single_3")
ESSAYS = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")
NEEDLE_HAYSTACK = ("niah_multikey_2", "niah_multikey_3")

APPLIES: dict[str, tuple[str, ...]] = {
    "key_adjectives": WORD_KEYS,
    "key_nouns": WORD_KEYS,
    "value_digits": NUMBER_VALUES,
    "haystack": tuple(name for name in NAMES if name.startswith("niah")),
    "num_keys": tuple(name for name in NAMES if name.startswith("niah")),
    "distractors": NEEDLE_HAYSTACK,
    "own_essays": ESSAYS,
    "step": NAMES,
    "tokens_to_generate": NAMES,
}
"""Which tasks a departure from the official parameters concerns; the others ignore it."""

Positive = Annotated[int, Field(gt=0)]
Length = Annotated[int, Field(gt=0, le=2**24)]


class RulerConfig(Strict):
    """RULER cells: every task at every length.

    Attributes:
        tasks: official names.
        lengths: prompt and answer together, in tokens.
        samples: per cell (official: 500).
        seed: of all samples (official: 42).
        key_adjectives: words of the keys instead of wonderwords', or a path beside the recipe.
        key_nouns: likewise.
        value_digits: digits of the numbers (official: 7).
        haystack: ``repeat`` (noise), ``needle`` (lines about other keys) or ``essay``, for all
            needle tasks of the section.
        num_keys: needles put into the haystack.
        distractors: lines of the haystacks made of needles, instead of as many as fit.
        own_essays: every sample begins at a sentence of its own, drawn; officially all begin at the
            first word of the essays.
        step: units by which haystacks grow.
        tokens_to_generate: budget of the answer.
    """

    kind: Literal["ruler"] = "ruler"
    tasks: tuple[str, ...] = Field(min_length=1)
    lengths: tuple[Length, ...] = Field(min_length=1)
    samples: Positive = 500
    seed: int = 42
    key_adjectives: WordSource | None = None
    key_nouns: WordSource | None = None
    value_digits: Annotated[int, Field(ge=1, le=18)] | None = None
    haystack: Literal["repeat", "needle", "essay"] | None = None
    num_keys: Positive | None = None
    distractors: Positive | None = None
    own_essays: bool | None = None
    step: Positive | None = None
    tokens_to_generate: Positive | None = None

    @field_validator("tasks")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in NAMES:
                near = difflib.get_close_matches(name, NAMES, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(NAMES)}"
                raise ValueError(f"unknown RULER task {name}; {hint}")
        return names

    @field_validator("tasks", "lengths")
    @classmethod
    def _once(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) < len(values):
            raise ValueError("an entry occurs twice")
        return values

    @model_validator(mode="after")
    def _concerned(self) -> RulerConfig:
        for key, names in APPLIES.items():
            if (key, self.haystack) in (("distractors", "needle"), ("own_essays", "essay")):
                continue
            if getattr(self, key) is not None and not set(names) & set(self.tasks):
                raise ValueError(f"{key} concerns none of the tasks, only {', '.join(names)}")
        return self
