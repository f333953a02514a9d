"""What the generators of one RULER cell share."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Sample
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.common.rng import rng
from evalkit.tasks.common.word_streams import numbers, pairs, uuids
from evalkit.tasks.ruler.templates import Spec

SHORT = 4096
"""Below this length the official scripts take smaller steps and shorter lists."""

DIGITS = 7
"""Of a number that is a key or a value."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """Departures from the official parameters; None is the official value."""

    key_adjectives: tuple[str, ...]
    key_nouns: tuple[str, ...]
    value_digits: int | None = None
    haystack: str | None = None
    num_keys: int | None = None
    distractors: int | None = None
    own_essays: bool | None = None
    step: int | None = None
    tokens_to_generate: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One task at one length.

    Attributes:
        spec: the official parameters and wording.
        length: prompt and answer together, in tokens.
        seed: of all samples.
        overrides: departures from the official parameters.
    """

    spec: Spec
    length: int
    seed: int
    overrides: Overrides
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.spec.name}@{self.length}")

    @property
    def tokens_to_generate(self) -> int:
        """Budget of the answer."""
        return self.overrides.tokens_to_generate or self.spec.tokens_to_generate

    def rng(self, index: int, purpose: str) -> random.Random:
        """The generator of one purpose of one sample."""
        return rng(self.spec.name, self.length, self.seed, index, purpose)

    def grid(self, step: int, *, least: int = 1, last: int | None = None) -> Grid:
        """Multiples of the official step (or of the recipe's), `least` or more units."""
        step = self.overrides.step or step
        return Grid(step * math.ceil(least / step), step, last)

    def stream(self, kind: str, source: random.Random) -> Iterator[str]:
        """Distinct keys or values of an official type: ``words``, ``numbers`` or ``uuids``."""
        if kind == "words":
            return pairs(self.overrides.key_adjectives, self.overrides.key_nouns, source)
        if kind == "numbers":
            return numbers(self.overrides.value_digits or DIGITS, source)
        if kind == "uuids":
            return uuids(source)
        raise EvalkitError(f"{self.name}: unknown type of keys or values {kind}")

    def sample(
        self,
        index: int,
        *,
        text: str,
        answer_prefix: str,
        references: tuple[str, ...],
        meta: Mapping[str, Any],
        metric: str = "ruler_all",
        cluster: str | None = None,
    ) -> Sample:
        """A finished sample of this cell; without a `cluster` it is its own."""
        identity = f"{self.name}/{index}"
        return Sample(
            id=identity,
            task=self.name,
            text=text,
            references=references,
            metric=metric,
            max_new_tokens=self.tokens_to_generate,
            answer_prefix=answer_prefix,
            cluster=identity if cluster is None else f"{self.name}/{cluster}",
            meta={"length": self.length, **meta},
        )
