"""Perplexity: held-out prose that an arm reads; its tokens are scored, nothing is generated."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import Strict
from evalkit.core.types import PERPLEXITY, Renderer, Sample
from evalkit.data.essays import essays
from evalkit.data.records import read_lines, refuse
from evalkit.dsa.json_types import JsonObject
from evalkit.tasks.base import TaskKind

Positive = Annotated[int, Field(gt=0)]

CHARACTERS_PER_TOKEN = 16
"""So much of a document is tokenized at first: more than a token of prose has in any language."""


class PerplexityConfig(Strict):
    """Cells of held-out prose, one for every length; a document is a sample.

    Attributes:
        name: of the cells, ``<name>@<length>``.
        lengths: tokens that are read of a document, special tokens included.
        context: tokens at the start that are read and not scored; like a prompt, they are prefill.
            All others are decode steps, as if the arm had written them, so that a lag acts.
        documents: how many.
        path: a JSONL file beside the recipe (a document a line, its text in the field ``text``), or
            a text file, which is cut into as many documents. If not given, Paul Graham's essays.
    """

    kind: Literal["perplexity"] = "perplexity"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")] = "prose"
    lengths: tuple[Annotated[int, Field(gt=1, le=2**24)], ...] = Field(min_length=1)
    context: Positive = 1
    documents: Positive = 20
    path: str | None = None

    @model_validator(mode="after")
    def _some_are_scored(self) -> PerplexityConfig:
        if self.context >= min(self.lengths):
            raise ValueError(f"context is {self.context}: nothing of {min(self.lengths)} is scored")
        return self


@dataclass(frozen=True)
class PerplexityTask:
    """All documents at one length.

    Attributes:
        config: the recipe section.
        length: tokens of a document.
        texts: the documents of a file; empty: the essays.
    """

    config: PerplexityConfig
    length: int
    texts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``<name>@<length>``."""
        return f"{self.config.name}@{self.length}"

    @property
    def deviations(self) -> dict[str, Any]:
        """Empty: there is no official one."""
        return {}

    def __len__(self) -> int:
        """Number of documents."""
        return self.config.documents

    def longest(self, count: int) -> int:
        """Position of the longest document among the first `count`; the essays' parts are alike."""
        return max(range(count), key=lambda i: len(self.texts[i])) if self.texts else 0

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Document `index`: its first words, as many as fit into the length.

        Raises:
            EvalkitError: there is no such document, it has no token beyond the context, or the
                essays cannot be had; the message names the cell.
        """
        if not 0 <= index < len(self):
            raise EvalkitError(f"{self.name}: no document {index} among {len(self)}")
        text = (self.texts or _parts(essays().text, len(self)))[index]
        sample = self._sample(index, self._cut(text, renderer))
        while (count := renderer.count(sample)) > self.length:
            sample = self._sample(index, sample.text.rpartition(" ")[0])
        if count <= self.config.context:
            raise EvalkitError(
                f"{self.name}: document {index} has {count} tokens, context is"
                f" {self.config.context}: leave it out, or shorten the context"
            )
        return sample

    def _cut(self, text: str, renderer: Renderer) -> str:
        """About as many words as fit; the text is cut, not what decoded tokens say."""
        tokenizer = renderer.tokenizer
        head = text[: CHARACTERS_PER_TOKEN * self.length]
        ids = tokenizer.encode(head, add_special_tokens=False)
        if len(ids) <= self.length:
            return head
        shown = len(tokenizer.decode(ids[: self.length + 1]))
        return head[:shown].rpartition(" ")[0] or head[:shown]

    def _sample(self, index: int, text: str) -> Sample:
        return Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=text,
            references=(),
            metric=PERPLEXITY,
            max_new_tokens=0,
            chat=False,
            meta={"length": self.length, "context": self.config.context},
            scored_from=self.config.context,
        )


def build(config: PerplexityConfig, base_dir: Path) -> list[PerplexityTask]:
    """The cells of a recipe section, one for every length; nothing is fetched yet.

    Raises:
        EvalkitError: the file beside the recipe cannot be used, or has too few documents.
    """
    texts = () if config.path is None else _read(base_dir / config.path, config.documents)
    return [PerplexityTask(config, length, texts) for length in config.lengths]


def _read(path: Path, count: int) -> tuple[str, ...]:
    """The documents of a file.

    Raises:
        EvalkitError: it cannot be read, or there are too few.
    """
    try:
        if path.suffix != ".jsonl":
            return _parts(" ".join(path.read_text(encoding="utf-8").split()), count)
        with path.open("rb") as stream:
            rows, problems = read_lines(stream, str(path), lambda row: row)
    except (OSError, UnicodeDecodeError) as error:
        raise EvalkitError(f"{path}: cannot be read as documents: {error}") from None
    refuse(problems)
    texts = [_text(row, f"{path}:{number}") for number, row in rows]
    if len(texts) < count:
        raise EvalkitError(f"{path}: {len(texts)} documents, {count} are asked for (documents)")
    return tuple(texts[:count])


def _text(row: JsonObject, place: str) -> str:
    text = row.get("text")
    if not isinstance(text, str) or not text.strip():
        raise EvalkitError(f"{place}: no text in the field text")
    return text


def _parts(text: str, count: int) -> tuple[str, ...]:
    """A text cut into parts of like length, each from a word on.

    Raises:
        EvalkitError: it has fewer words than parts.
    """
    words = text.split(" ")
    if len(words) < count or not text:
        raise EvalkitError(f"a text of {len(words)} words cannot be cut into {count} documents")
    starts = [len(words) * i // count for i in range(count + 1)]
    return tuple(" ".join(words[a:b]) for a, b in pairwise(starts))


KIND = TaskKind(
    config=PerplexityConfig,
    build=build,
    chooses=("lengths",),
    descriptions=lambda: {"perplexity": "held-out prose: perplexity, and logit KL to the baseline"},
    reads=True,
)
