"""The recipe section of a task of one's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from evalkit.core.plugins import near
from evalkit.core.recipe import Strict
from evalkit.scorers import METRICS
from evalkit.tasks.records.template import Template

Positive = Annotated[int, Field(gt=0)]
Length = Annotated[int, Field(gt=0, le=2**24)]


class RecordsConfig(Strict):
    """Questions from a file or data set: one cell, or one for every length.

    Give `path` or `dataset`.

    Attributes:
        name: of the cells: ``<name>``, or ``<name>@<length>``.
        path: JSON lines, CSV with a header, or Parquet, by its suffix; beside the recipe.
        dataset: id of a data set on the hub, or a folder that `datasets` can load.
        subset: of the data set.
        split: of the data set.
        revision: of the data set.
        prompt: text with ``{field}`` places; ``{{`` is a brace. A field inside an object is
            ``{answers.text}``.
        references: field of the gold answers: a text, a number, or a list of them.
        metric: name of a scorer; of ``classification``, the classes are all gold answers.
        id: field that tells records apart; one that occurs twice is refused.
        cluster: field that is equal in records that ask about one text, which count as one unit;
            default: the longest field of the prompt.
        lengths: prompt and answer together, in tokens; a prompt that is longer loses its middle.
            None: prompts stay whole.
        max_new_tokens: budget of the answer.
        stop: strings that end the answer.
        chat: False sends the prompt without the chat template.
    """

    kind: Literal["records"] = "records"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    path: str | None = None
    dataset: str | None = None
    subset: str | None = None
    split: str | None = None
    revision: str | None = None
    prompt: str
    references: str
    metric: str
    id: str | None = None
    cluster: str | None = None
    lengths: Annotated[tuple[Length, ...], Field(min_length=1)] | None = None
    max_new_tokens: Positive
    stop: tuple[str, ...] = ()
    chat: bool = True

    @field_validator("prompt")
    @classmethod
    def _template(cls, prompt: str) -> str:
        Template.parse(prompt)
        return prompt

    @field_validator("metric")
    @classmethod
    def _known_metric(cls, name: str) -> str:
        if name not in METRICS:
            raise ValueError(f"unknown metric {name}; {near(name, METRICS)}")
        return name

    @field_validator("lengths")
    @classmethod
    def _once(cls, lengths: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if lengths is not None and len(set(lengths)) < len(lengths):
            raise ValueError("an entry occurs twice")
        return lengths

    @model_validator(mode="after")
    def _one_source(self) -> RecordsConfig:
        if (self.path is None) == (self.dataset is None):
            raise ValueError("give path or dataset, one of them")
        if self.dataset is not None and self.split is None:
            raise ValueError("a dataset needs its split, such as split = 'test'")
        if self.path is not None and (self.subset or self.split or self.revision):
            raise ValueError("subset, split and revision belong to a dataset, not to a path")
        return self

    @property
    def template(self) -> Template:
        """The prompt, read."""
        return Template.parse(self.prompt)
