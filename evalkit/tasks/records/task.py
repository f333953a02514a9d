"""A cell of a user's own questions: `RecordsTask.sample(i, renderer)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.dsa.json_types import JsonValue
from evalkit.tasks.common import truncate_middle
from evalkit.tasks.records import questions
from evalkit.tasks.records.config import RecordsConfig

LEAST = 8
"""Tokens of a prompt that are worth keeping."""


@dataclass(frozen=True)
class RecordsTask:
    """All questions at one length.

    Attributes:
        config: the recipe section.
        length: prompt and answer together, in tokens; None: prompts stay whole.
        base_dir: folder of the recipe.
    """

    config: RecordsConfig
    length: int | None
    base_dir: Path

    @property
    def name(self) -> str:
        """``<name>`` or ``<name>@<length>``."""
        return self.config.name if self.length is None else f"{self.config.name}@{self.length}"

    @property
    def deviations(self) -> Mapping[str, Any]:
        """None: there is no official version."""
        return {}

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._questions.entries)

    @cached_property
    def _questions(self) -> questions.Questions:
        return questions.load(self.config, self.base_dir)

    def longest(self, count: int) -> int:
        """Position of the longest prompt, in characters and uncut, among the first `count`."""
        template, entries = self._questions.template, self._questions.entries
        return max(range(count), key=lambda i: len(template.fill(entries[i].row)))

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index`, its middle cut out where prompt and answer are longer than `length`.

        Raises:
            EvalkitError: there is no such sample, or the length leaves no room for a prompt.
        """
        if not 0 <= index < len(self):
            raise EvalkitError(f"{self.name}: no sample {index} among {len(self)}")
        entry, config = self._questions.entries[index], self.config
        text = self._questions.template.fill(entry.row)
        sample = Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=text,
            references=entry.references,
            metric=config.metric,
            max_new_tokens=config.max_new_tokens,
            cluster=f"{self.name}/{entry.cluster}",
            stop=config.stop,
            chat=config.chat,
        )
        sample, cut = self._fitted(sample, renderer)
        meta: dict[str, JsonValue] = {"line": entry.line}
        if entry.id is not None:
            meta["_id"] = entry.id
        if config.metric == "classification":
            meta["all_classes"] = list(self._questions.classes)
        if cut is not None:
            survived = truncate_middle.survives(cut, "", text, "", entry.references)
            meta |= {"tokens": cut.tokens, "truncated": True, "gold_survived": survived}
        return replace(sample, meta=meta)

    def _fitted(
        self, sample: Sample, renderer: Renderer
    ) -> tuple[Sample, truncate_middle.Cut | None]:
        """The sample within the length, and what was cut out of it."""
        if self.length is None:
            return sample, None
        limit = self.length - sample.max_new_tokens
        used, keep = renderer.count(sample), limit - renderer.overhead(chat=sample.chat)
        cut = None
        while used > limit:
            if keep < LEAST:
                raise EvalkitError(
                    f"{self.name}: too short for this task: {max(keep, 0)} tokens are left for the"
                    f" prompt beside the answer's {sample.max_new_tokens} and the chat template"
                )
            cut = truncate_middle.halves(sample.text, renderer.tokenizer, keep)
            shorter = replace(sample, text=cut.text)
            used = renderer.count(shorter)
            if used <= limit:
                return shorter, cut
            keep -= max(2, used - limit)  # halves that meet may be more tokens than they were
        return sample, cut


def build(config: RecordsConfig, base_dir: Path) -> list[RecordsTask]:
    """The cells of a section.

    Raises:
        EvalkitError: the file or data set cannot be used, see `questions.load`.
    """
    questions.load(config, base_dir)
    return [RecordsTask(config, length, base_dir) for length in config.lengths or (None,)]
