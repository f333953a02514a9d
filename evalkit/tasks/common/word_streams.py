"""Streams of distinct keys and values: word pairs, numbers, uuids."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.tasks.common.rng import permutation

WordSource = tuple[str, ...] | str
"""Words in the recipe, or the path of a JSON list or of a text file with one word a line."""


@cache
def wordlist(name: str) -> tuple[str, ...]:
    """``noun``, ``adjective`` or ``verb``: the list of wonderwords 3.0.1, each word once."""
    text = (resources.files("wonderwords") / "assets" / f"{name}list.txt").read_text("utf-8")
    return tuple(dict.fromkeys(line.rstrip() for line in text.splitlines()))


def read_words(source: WordSource | None, base_dir: Path, default: str) -> tuple[str, ...]:
    """The words a recipe names, or wonderwords' `default` list.

    Args:
        source: words, a path relative to `base_dir`, or None.
        base_dir: folder of the recipe.
        default: ``noun`` or ``adjective``.

    Raises:
        EvalkitError: the file cannot be read, or the list is empty or holds a word twice.
    """
    if source is None:
        return wordlist(default)
    where = f"{default} list"
    if isinstance(source, str):
        path = base_dir / source
        where = str(path)
        try:
            text = path.read_text(encoding="utf-8")
            entries = json.loads(text) if path.suffix == ".json" else text.splitlines()
        except (OSError, ValueError) as error:
            raise EvalkitError(f"{path}: cannot be read as a word list: {error}") from None
        if not isinstance(entries, list) or not all(isinstance(word, str) for word in entries):
            raise EvalkitError(f"{path}: is not a list of words")
        source = tuple(word.strip() for word in entries if word.strip())
    if not all(word.strip() for word in source) or not source:
        raise EvalkitError(f"{where}: holds no words, or an empty one")
    if len(set(source)) < len(source):
        twice = next(word for i, word in enumerate(source) if word in source[:i])
        raise EvalkitError(f"{where}: {twice!r} occurs twice")
    return source


def pairs(adjectives: Sequence[str], nouns: Sequence[str], source: random.Random) -> Iterator[str]:
    """Distinct ``adjective-noun`` keys in random order; EvalkitError when all are used."""
    for i in permutation(len(adjectives) * len(nouns), source):
        yield f"{adjectives[i // len(nouns)]}-{nouns[i % len(nouns)]}"
    raise EvalkitError(
        f"{len(adjectives)} adjectives and {len(nouns)} nouns make too few distinct keys"
    )


def numbers(digits: int, source: random.Random) -> Iterator[str]:
    """Distinct numbers of so many digits, no leading zero; EvalkitError when all are used."""
    low = 10 ** (digits - 1)
    for i in permutation(9 * low, source):
        yield str(low + i)
    raise EvalkitError(f"there are too few distinct numbers of {digits} digits")


def uuids(source: random.Random) -> Iterator[str]:
    """Distinct random uuids (version 4)."""
    seen: set[str] = set()
    while True:
        bits = (
            source.getrandbits(128) & ~(0xF000 << 64 | 0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
        )
        digits = f"{bits:032x}"  # as uuid.UUID(int=…, version=4), in a third of the time
        value = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        if value not in seen:
            seen.add(value)
            yield value


def listed(items: Sequence[str]) -> str:
    """``a``, ``a, and b``, ``a, b, and c``: RULER's way to list what is asked."""
    return f"{', '.join(items[:-1])}, and {items[-1]}" if len(items) > 1 else items[0]
