"""A RULER cell as a task: `RulerTask.sample(i, renderer)`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.tasks.common.fit_length import Draft, Fitter
from evalkit.tasks.common.word_streams import read_words, wordlist
from evalkit.tasks.ruler.cell import DIGITS, Cell, Overrides
from evalkit.tasks.ruler.config import APPLIES, RulerConfig
from evalkit.tasks.ruler.cwe import CommonWords
from evalkit.tasks.ruler.fwe import FrequentWords
from evalkit.tasks.ruler.niah import Niah, num_keys
from evalkit.tasks.ruler.qa import DocumentQa
from evalkit.tasks.ruler.templates import specs
from evalkit.tasks.ruler.vt import VariableTracking

FAMILIES: dict[str, Callable[[Cell, int, Renderer], Draft]] = {
    "niah": Niah,
    "variable_tracking": VariableTracking,
    "common_words_extraction": CommonWords,
    "freq_words_extraction": FrequentWords,
    "qa": DocumentQa,
}


@dataclass(frozen=True)
class RulerTask:
    """One task at one length.

    Attributes:
        base: the official task.
        length: prompt and answer together, in tokens.
        samples: how many.
        seed: of all samples.
        overrides: departures from the official parameters.
    """

    base: str
    length: int
    samples: int
    seed: int
    overrides: Overrides

    @property
    def name(self) -> str:
        """``<task>@<length>``."""
        return f"{self.base}@{self.length}"

    def __len__(self) -> int:
        """Number of samples."""
        return self.samples

    @cached_property
    def cell(self) -> Cell:
        """The cell with its official parameters; fetches the pinned wheel when first asked."""
        return Cell(specs()[self.base], self.length, self.seed, self.overrides)

    @cached_property
    def deviations(self) -> dict[str, Any]:
        """What differs from the official task, empty if nothing does; for the report."""
        official = {
            "key_adjectives": wordlist("adjective"),
            "key_nouns": wordlist("noun"),
            "value_digits": DIGITS,
            "own_essays": False,
            "tokens_to_generate": self.cell.spec.tokens_to_generate,
        }
        if self.cell.spec.family == "niah":
            official["num_keys"] = num_keys(self.cell.spec)
            official["haystack"] = str(self.cell.spec.args["type_haystack"])
        changes: dict[str, Any] = {}
        for key, names in APPLIES.items():
            value = getattr(self.overrides, key)
            if self.base in names and value not in (None, official.get(key)):
                changes[key] = _digest(value) if isinstance(value, tuple) else value
        return changes

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index`, its haystack as large as fits into the length.

        Raises:
            EvalkitError: there is no such sample, the length is too short for the task, the words
                do not suffice, or the pinned wheel cannot be had; the message names the cell.
        """
        if not 0 <= index < self.samples:
            raise EvalkitError(f"{self.name}: no sample {index} among {self.samples}")
        return self._fitter.sample(index, renderer)

    @cached_property
    def _fitter(self) -> Fitter:
        cell = self.cell
        family = FAMILIES[cell.spec.family]
        limit = self.length - cell.tokens_to_generate
        return Fitter(self.name, limit, lambda index, renderer: family(cell, index, renderer))


def build(config: RulerConfig, base_dir: Path) -> list[RulerTask]:
    """The cells of a recipe section, task by task; nothing is fetched yet.

    Raises:
        EvalkitError: a word list beside the recipe cannot be used.
    """
    overrides = Overrides(
        key_adjectives=read_words(config.key_adjectives, base_dir, "adjective"),
        key_nouns=read_words(config.key_nouns, base_dir, "noun"),
        value_digits=config.value_digits,
        haystack=config.haystack,
        num_keys=config.num_keys,
        distractors=config.distractors,
        own_essays=config.own_essays,
        step=config.step,
        tokens_to_generate=config.tokens_to_generate,
    )
    return [
        RulerTask(name, length, config.samples, config.seed, overrides)
        for name in config.tasks
        for length in config.lengths
    ]


def _digest(words: tuple[str, ...]) -> str:
    sha = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return f"{len(words)} words, sha256 {sha[:16]}"
