"""The sentences and key words of the small model, read from `wording.toml` and `words/`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Haystack:
    """Filler between the needles: its units, and the text between any two units."""

    joint: str
    shuffle: bool
    units: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """One way to state a needle and to ask for it; `haystack` maps kinds to their share."""

    weight: float
    haystack: dict[str, float]
    intro: str
    needle: str
    question: str
    answer: str


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads((HERE / "wording.toml").read_text(encoding="utf-8"))


@cache
def haystacks() -> dict[str, Haystack]:
    """All haystack kinds by name."""
    return {
        name: Haystack(entry["joint"], entry["shuffle"], tuple(entry["units"]))
        for name, entry in _data()["haystack"].items()
    }


@cache
def wordings() -> dict[str, Wording]:
    """All wordings by name."""
    return {name: Wording(**entry) for name, entry in _data()["wording"].items()}


@dataclass(frozen=True, slots=True)
class Plural:
    """The RULER wording that asks for several keys at once; its needles are the singular's."""

    intro: str
    question: str
    answer: str


@cache
def plural() -> Plural:
    """The plural form."""
    return Plural(**_data()["plural"]["ruler"])


@cache
def adjectives() -> tuple[str, ...]:
    """First halves of the keys."""
    return tuple((HERE / "words" / "adjectives.txt").read_text(encoding="utf-8").split())


@cache
def nouns() -> tuple[str, ...]:
    """Second halves of the keys."""
    return tuple((HERE / "words" / "nouns.txt").read_text(encoding="utf-8").split())
