"""Randomness that depends on names, never on order, process or tokenizer."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator


def rng(*parts: str | int) -> random.Random:
    """A generator of its own for every tuple of parts (task, length, seed, index, purpose ...)."""
    digest = hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))


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
