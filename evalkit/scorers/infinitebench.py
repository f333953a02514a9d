"""InfiniteBench's scores of its three retrieval tasks (its src/compute_scores.py)."""

from __future__ import annotations

import re

from evalkit.scorers.base import plain
from evalkit.scorers.match import needle_exact

_DIGITS = re.compile(r"[0-9]+")
_BETWEEN = str.maketrans(dict.fromkeys("\n:\"'.,?!{}", " "))


def first_number(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the first digits of the answer are the gold's (``passkey``, ``number_string``)."""
    first = _DIGITS.search(prediction)
    return float(first is not None and first[0] in references)


def strict_first_number(prediction: str, references: tuple[str, ...]) -> float:
    """1 / (distinct numbers in the answer with as many digits as the gold) if it is among them.

    "The 5-digit key is 71432" is right, and a list of candidates is not.
    """
    sizes = {len(reference) for reference in references}
    named = {number for number in _DIGITS.findall(prediction) if len(number) in sizes}
    return 1.0 / len(named) if named.intersection(references) else 0.0


def key_value(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the gold is a word of the answer between spaces and punctuation (``kv_retrieval``)."""
    words = prediction.translate(_BETWEEN).split()
    return float(any(reference in words for reference in references))


FIRST_NUMBER = plain(first_number, strict_first_number)
KEY_VALUE = plain(key_value, lambda answer, golds: float(needle_exact(answer, golds) > 0))
