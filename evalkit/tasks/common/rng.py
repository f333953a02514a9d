"""Randomness that depends on names, never on order, process or tokenizer."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, MutableSequence
from typing import Any


class Generator(random.Random):
    """A generator of the standard library; lists of a long prompt are shuffled in half the time."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """As `random.Random.shuffle`, number for number, without a call for each of them."""
        draw = self.getrandbits
        for i in range(len(x) - 1, 0, -1):
            bits = (i + 1).bit_length()
            while (j := draw(bits)) > i:
                pass
            x[i], x[j] = x[j], x[i]


def rng(*parts: str | int) -> Generator:
    """A generator of its own for every tuple of parts (task, length, seed, index, purpose ...)."""
    digest = hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).digest()
    return Generator(int.from_bytes(digest, "big"))


def permutation(size: int, source: random.Random) -> Iterator[int]:
    """``range(size)`` in random order, drawn as it is consumed (a lazy Fisher-Yates shuffle)."""
    moved: dict[int, int] = {}
    draw = source.getrandbits
    for i in range(size):
        left = size - i
        bits = left.bit_length()
        while (j := draw(bits)) >= left:
            pass
        j += i
        value = moved.get(j, j)
        moved[j] = moved.pop(i, i)
        yield value
