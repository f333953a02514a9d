"""The recipe section of the graph-walk task."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from evalkit.core.recipe import Strict
from evalkit.tasks.common.word_streams import WordSource

Positive = Annotated[int, Field(gt=0)]

DESCRIPTIONS = {
    "frontier": "nodes at exactly so many steps, in a long list of edges",
    "parents": "nodes with an edge to the asked one, in a long list of edges",
}

REASONING = 2048
"""Tokens left for what a model writes before its last line, unless the recipe says otherwise."""


class GraphWalkConfig(Strict):
    """Graph-walk cells: every operation at every length.

    Attributes:
        name: of the cells, ``<name>_<operation>@<length>``.
        operations: ``frontier`` (nodes at exactly so many steps of a breadth-first search) and
            ``parents`` (nodes with an edge to the asked one).
        lengths: whole prompt and answer in tokens, or prompt text in characters.
        unit: of the lengths. Tokens count the chat template and the answer's budget; characters
            count the text and the answer prefix.
        samples: per cell.
        steps: of the search; sample ``i`` takes entry ``i % len(steps)``. For ``frontier`` only.
        width: nodes of an answer at most.
        digits: hexadecimal digits of a node's name.
        nodes: names of the nodes instead of random ones, or a path beside the recipe.
        direct: put ``Final answer:`` at the start of the assistant's turn; without it the model
            may write before its last line.
        metric: ``set_f1``, or ``set_exact``: 1 where the F1 is 1, else 0.
        max_new_tokens: budget of the answer; if not given, a token for every character of the
            longest answer, and `REASONING` more without `direct`.
        seed: of all samples.
    """

    kind: Literal["graphwalk"] = "graphwalk"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")] = "graphwalk"
    operations: tuple[Literal["frontier", "parents"], ...] = ("frontier", "parents")
    lengths: tuple[Positive, ...] = Field(min_length=1)
    unit: Literal["tokens", "characters"] = "tokens"
    samples: Positive = 100
    steps: tuple[Annotated[int, Field(ge=1, le=8)], ...] = Field(default=(1, 2, 3), min_length=1)
    width: Annotated[int, Field(ge=1, le=64)] = 8
    digits: Annotated[int, Field(ge=3, le=16)] = 6
    nodes: WordSource | None = None
    direct: bool = True
    metric: Literal["set_f1", "set_exact"] = "set_f1"
    max_new_tokens: Positive | None = None
    seed: int = 42

    @field_validator("operations", "lengths")
    @classmethod
    def _once(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if not values:
            raise ValueError("no entry")
        if len(set(values)) < len(values):
            raise ValueError("an entry occurs twice")
        return values

    @model_validator(mode="after")
    def _concerned(self) -> GraphWalkConfig:
        if "steps" in self.model_fields_set and "frontier" not in self.operations:
            raise ValueError("steps concerns the operation frontier only")
        return self
