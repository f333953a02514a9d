"""Texts said again word for word, behind a required first word."""

from __future__ import annotations

from difflib import SequenceMatcher

from evalkit.scorers.base import plain


def prefixed_ratio(prediction: str, references: tuple[str, ...]) -> float:
    """Likeness of the answer to the best reference, 0 where its first word is not the required.

    The first word of a reference is the required one, the rest its text. Of what stands behind
    that word, stripped, the score is ``2 M / T``: T characters of both texts, M of them in the
    matching blocks of `difflib.SequenceMatcher` (Ratcliff and Obershelp), automatic junk off.
    """
    return max(_ratio(prediction, reference) for reference in references)


def prefixed_exact(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the answer is a reference, word for word; white space between words is ignored."""
    answer = prediction.split()
    return float(any(answer == reference.split() for reference in references))


def _ratio(prediction: str, reference: str) -> float:
    word, _, text = reference.partition(" ")
    answer = prediction.strip()
    if not answer.startswith(word):
        return 0.0
    said = answer.removeprefix(word).strip()
    # difflib is not symmetric; the reference is always the second sequence, which is indexed
    return SequenceMatcher(None, said, text.strip(), autojunk=False).ratio()


PREFIXED_RATIO = plain(prefixed_ratio)
PREFIXED_EXACT = plain(prefixed_exact, hub="exact_match")
