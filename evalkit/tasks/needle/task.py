"""A needle cell as a task: `NeedleTask.sample(i, renderer)`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.data.essays import essays
from evalkit.data.sentences import split
from evalkit.tasks.common.fit_length import Fitter, Grid
from evalkit.tasks.common.rng import rng
from evalkit.tasks.common.word_streams import numbers, pairs, read_words, uuids
from evalkit.tasks.needle import haystacks
from evalkit.tasks.needle.config import NeedleConfig
from evalkit.tasks.needle.draft import NEEDLE, NeedleDraft

TOKENS_PER_VALUE = 48
FINE = 4096
"""Up to this length haystacks grow by single units, beyond it by 1/4096 of the length."""


@dataclass(frozen=True)
class NeedleTask:
    """All depths and repeats of one length.

    Sample `i` has depth ``i % depths`` and repeat ``i // depths`` of the recipe's lists.

    Attributes:
        config: the recipe section.
        length: in the section's unit.
        adjectives: first words of the keys.
        nouns: second words of the keys.
        units: sentences of the haystack ``file``.
    """

    config: NeedleConfig
    length: int
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    units: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``<name>@<length>``, with ``chars`` behind a length in characters."""
        unit = "chars" if self.config.unit == "characters" else ""
        return f"{self.config.name}@{self.length}{unit}"

    @property
    def deviations(self) -> dict[str, Any]:
        """Empty: there is no official needle task to depart from."""
        return {}

    def __len__(self) -> int:
        """Number of samples."""
        return self.config.repeats * len(self.config.percents())

    @property
    def shared_haystacks(self) -> int | None:
        """Haystacks that the samples share, where the recipe says how many."""
        return self.config.haystacks

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index`, its haystack as large as fits into the length.

        Raises:
            EvalkitError: there is no such sample, the length is too short, the words do not
                suffice, or the essays cannot be had; the message names the cell.
        """
        if not 0 <= index < len(self):
            raise EvalkitError(f"{self.name}: no sample {index} among {len(self)}")
        return self._fitter.sample(index, renderer)

    @cached_property
    def _fitter(self) -> Fitter:
        tokens = self.config.unit == "tokens"
        limit = self.length - (self._max_new_tokens if tokens else 0)
        return Fitter(self.name, limit, self._draft, self.config.unit)

    @property
    def _max_new_tokens(self) -> int:
        return self.config.max_new_tokens or TOKENS_PER_VALUE * self.config.asked

    def _draft(self, index: int, _renderer: Renderer) -> NeedleDraft:
        config, percents = self.config, self.config.percents()
        shared = config.haystacks
        number = index if shared is None else index // len(percents) % shared
        source = partial(rng, self.name, config.seed, index)
        keys = pairs(self.adjectives, self.nouns, source("keys"))
        values = self._values(source("values"))
        needles = [(next(keys), next(values)) for _ in range(config.needles)]
        depths = source("other depths")
        others = tuple((*pair, 100 * depths.random()) for pair in needles[config.asked :])
        fine = config.unit == "characters" or self.length <= FINE
        return NeedleDraft(
            grid=Grid(1, 1 if fine else self.length // FINE),
            haystack=self._haystack(number, needles),
            asked=tuple(needles[: config.asked]),
            others=others,
            depth=percents[index % len(percents)],
            order=tuple(source("question").sample(range(config.asked), config.asked)),
            finish=partial(self._finish, index, number),
        )

    def _finish(
        self,
        index: int,
        number: int,
        *,
        text: str,
        answer_prefix: str,
        references: tuple[str, ...],
        meta: Mapping[str, Any],
    ) -> Sample:
        return Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=text,
            references=references,
            metric="needle_exact",
            max_new_tokens=self._max_new_tokens,
            answer_prefix=answer_prefix,
            cluster=f"{self.name}/haystack {number}",
            meta={"length": self.length, "haystack": number, **meta},
        )

    def _values(self, source: random.Random) -> Iterator[str]:
        if self.config.value == "uuid":
            return uuids(source)
        return numbers(self.config.value_digits, source)

    def _haystack(self, number: int, needles: list[tuple[str, str]]) -> haystacks.Haystack:
        """Haystack `number`; sentences about a key or with a value of the sample are left out."""
        source = partial(rng, self.name, self.config.seed, f"haystack {number}")
        if self.config.haystack == "filler":
            return haystacks.filler(source("units"))
        if self.config.haystack == "needles":
            taken = {text for pair in needles for text in pair}
            keys = pairs(self.adjectives, self.nouns, source("keys"))
            values = self._values(source("values"))
            lines = (
                NEEDLE.format(key=key, value=value)
                for key, value in ((key, next(values)) for key in keys)
                if key not in taken and value not in taken
            )
            return haystacks.needles(lines)
        return haystacks.prose(self.units or _essays(), source("start"))


def build(config: NeedleConfig, base_dir: Path) -> list[NeedleTask]:
    """The cells of a recipe section, one for every length; nothing is fetched yet.

    Raises:
        EvalkitError: a word list or the haystack file beside the recipe cannot be used.
    """
    adjectives = read_words(config.key_adjectives, base_dir, "adjective")
    nouns = read_words(config.key_nouns, base_dir, "noun")
    units = _read(base_dir / config.path) if config.path is not None else ()
    return [NeedleTask(config, length, adjectives, nouns, units) for length in config.lengths]


def _read(path: Path) -> tuple[str, ...]:
    try:
        units = haystacks.cut(path.read_text(encoding="utf-8"), split)
    except (OSError, UnicodeDecodeError) as error:
        raise EvalkitError(f"{path}: cannot be read as a haystack: {error}") from None
    if not units:
        raise EvalkitError(f"{path}: a haystack without text")
    return units


@cache
def _essays() -> tuple[str, ...]:
    return haystacks.cut(essays().text, split)
