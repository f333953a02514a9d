"""Key phrases of a needle: the deterministic stand-in for a judge."""

from __future__ import annotations

from evalkit.scorers.base import plain


def needle_phrases(prediction: str, references: tuple[str, ...]) -> float:
    """1 if every key phrase occurs in the answer, else 0; case and white space do not count."""
    answer = " ".join(prediction.split()).lower()
    return float(all(" ".join(phrase.split()).lower() in answer for phrase in references))


NEEDLE_PHRASES = plain(needle_phrases)
