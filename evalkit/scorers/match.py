"""String matching: RULER's two metrics, and the exact key of the needle task."""

from __future__ import annotations

import re

from evalkit.scorers.base import plain

_CONTROL = re.compile(r"[\x00-\x1f]")


def ruler_all(prediction: str, references: tuple[str, ...]) -> float:
    """Fraction of the references that occur in the answer (RULER's ``string_match_all``).

    Case is ignored and there are no word boundaries: the reference ``12`` is found in ``512``.
    """
    answer = ruler_cleanup(prediction).lower()
    return sum(reference.lower() in answer for reference in references) / len(references)


def ruler_part(prediction: str, references: tuple[str, ...]) -> float:
    """1 if any reference occurs in the answer, else 0 (RULER's ``string_match_part``)."""
    answer = ruler_cleanup(prediction).lower()
    return float(any(reference.lower() in answer for reference in references))


def strict_all(prediction: str, references: tuple[str, ...]) -> float:
    """Fraction of the references that stand alone in the answer: ``12`` is not in ``512``.

    White space of any kind and length is one space on both sides.
    """
    answer = " ".join(prediction.split())
    present = (_stands_alone(" ".join(reference.split()), answer) for reference in references)
    return sum(present) / len(references)


def strict_part(prediction: str, references: tuple[str, ...]) -> float:
    """1 if any reference stands alone in the answer, else 0."""
    return float(strict_all(prediction, references) > 0)


def ruler_cleanup(prediction: str) -> str:
    """What RULER does to an answer first: strip, control characters to newlines, strip."""
    return _CONTROL.sub("\n", prediction.strip()).strip()


def needle_exact(prediction: str, references: tuple[str, ...]) -> float:
    """Fraction of the references that stand alone in the answer.

    A reference counts only as a whole run of letters and digits: ``4821`` is found in
    ``"It is 4821."`` and in ``"是4821。"``, not in ``14821`` or ``4821b``. Case is ignored.
    """
    return sum(_stands_alone(reference, prediction) for reference in references) / len(references)


def _stands_alone(reference: str, text: str) -> bool:
    pattern = rf"(?<![0-9A-Za-z]){re.escape(reference)}(?![0-9A-Za-z])"
    return re.search(pattern, text, re.IGNORECASE) is not None


RULER_ALL = plain(ruler_all, strict_all)
RULER_PART = plain(ruler_part, strict_part)
NEEDLE_EXACT = plain(needle_exact, hub="exact_match")
