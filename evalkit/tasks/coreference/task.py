"""A co-reference cell as a task: `CoreferenceTask.sample(i, renderer)`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.tasks.common.fit_length import Fitter, Grid
from evalkit.tasks.common.rng import rng
from evalkit.tasks.coreference.config import CoreferenceConfig
from evalkit.tasks.coreference.draft import CoreferenceDraft, Round
from evalkit.tasks.coreference.text import Request, nearby, reply, request

FINE = 32768
"""Up to this length conversations grow by single rounds, beyond it by 1/32768 of the length."""

NEARBY = 0.3
"""Share of the other rounds whose request differs in one word from the asked one."""

LETTERS = "bcdfghjkmnpqrstvwxz"
"""Of the word that an answer begins with; no vowels, so that it is no word of a language."""


@dataclass(frozen=True)
class CoreferenceTask:
    """One number of equal requests at one length.

    Attributes:
        config: the recipe section.
        equal: how often the asked request occurs.
        length: in the section's unit.
    """

    config: CoreferenceConfig
    equal: int
    length: int

    @property
    def name(self) -> str:
        """``<name>_<equal>@<length>``, with ``chars`` behind a length in characters."""
        unit = "chars" if self.config.unit == "characters" else ""
        return f"{self.config.name}_{self.equal}@{self.length}{unit}"

    @property
    def deviations(self) -> dict[str, Any]:
        """Empty: the task is our own, there is nothing official to depart from."""
        return {}

    def __len__(self) -> int:
        """Number of samples."""
        return self.config.samples

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index`, its conversation as long as fits into the length.

        Raises:
            EvalkitError: there is no such sample, or the length is too short; the message names
                the cell.
        """
        if not 0 <= index < len(self):
            raise EvalkitError(f"{self.name}: no sample {index} among {len(self)}")
        return self._fitter.sample(index, renderer)

    @cached_property
    def _fitter(self) -> Fitter:
        tokens = self.config.unit == "tokens"
        limit = self.length - (self.max_new_tokens if tokens else 0)
        return Fitter(self.name, limit, self._draft, self.config.unit)

    @property
    def max_new_tokens(self) -> int:
        """Budget of the answer."""
        return self.config.max_new_tokens or 16 + 40 * self.config.sentences

    def _draft(self, index: int, _renderer: Renderer) -> CoreferenceDraft:
        source = partial(rng, self.name, self.config.seed, index)
        asked = request(source("asked"))
        return CoreferenceDraft(
            grid=Grid(0, max(1, self.length // FINE)),
            asked=asked,
            replies=self._replies(asked, source("replies")),
            occurrence=1 + index % self.equal,
            word="".join(source("word").choices(LETTERS, k=8)),
            others=self._others(asked, source("others")),
            places=lambda units: source(f"places/{units}"),
            finish=partial(self._finish, index),
        )

    def _replies(self, asked: Request, source: random.Random) -> tuple[str, ...]:
        """Replies to the asked request, no two of them equal."""
        replies: dict[str, None] = {}
        while len(replies) < self.equal:
            replies[reply(asked, self.config.sentences, source)] = None
        return tuple(replies)

    def _others(self, asked: Request, source: random.Random) -> Iterator[Round]:
        """Rounds with other requests, many of them near the asked one."""
        while True:
            near = source.random() < NEARBY
            other = nearby(asked, source) if near else request(source)
            if other != asked:
                yield other, reply(other, self.config.sentences, source)

    def _finish(
        self, index: int, *, text: str, references: tuple[str, ...], meta: Mapping[str, Any]
    ) -> Sample:
        return Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=text,
            references=references,
            metric=self.config.metric,
            max_new_tokens=self.max_new_tokens,
            cluster=f"{self.name}/{index}",
            meta={"length": self.length, **meta},
        )


def build(config: CoreferenceConfig, _base_dir: Path) -> list[CoreferenceTask]:
    """The cells of a recipe section, by number of equal requests."""
    return [
        CoreferenceTask(config, equal, length)
        for equal in config.equal
        for length in config.lengths
    ]
