"""Sets of names: F1 and exact equality of a final list."""

from __future__ import annotations

import re

from evalkit.scorers.base import plain

_MARK = re.compile(r"final\s+answer\s*:", re.IGNORECASE)
_SPLIT = re.compile(r"[,\s]+")
_DRESSING = "\"'`*.()"


def set_f1(prediction: str, references: tuple[str, ...]) -> float:
    """``2 |A ∩ B| / (|A| + |B|)`` of the listed names A and the references B."""
    listed, gold = final_list(prediction), _names(references)
    total = len(listed) + len(gold)
    return 2 * len(listed & gold) / total if total else 1.0


def set_exact(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the listed names are the references, no more and no fewer: where the F1 is 1."""
    return float(final_list(prediction) == _names(references))


def final_list(prediction: str) -> frozenset[str]:
    """The names of an answer's final list, in lower case.

    The list stands behind the last ``Final answer:``, or at the very start where these words are
    missing (they were the answer prefix). It is what the first brackets hold, over several lines
    if need be; without brackets it is the rest of the line. Commas and white space separate.
    """
    text = _MARK.split(prediction)[-1].strip().lstrip("*_:").lstrip()
    line, _, _ = text.partition("\n")
    before, bracket, rest = line.partition("[")
    if bracket:
        inside, closed, _ = text[len(before) + 1 :].partition("]")
        line = inside if closed else rest
    return _names(_SPLIT.split(line))


def _names(items: tuple[str, ...] | list[str]) -> frozenset[str]:
    stripped = (item.strip().strip(_DRESSING).lower() for item in items)
    return frozenset(item for item in stripped if item)


SET_F1 = plain(set_f1, hub="f1")
SET_EXACT = plain(set_exact, hub="exact_match")
