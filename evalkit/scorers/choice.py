"""The letter of a multiple-choice answer (LongBench v2)."""

from __future__ import annotations

import re
import unicodedata

from evalkit.core.reasoning import without_reasoning
from evalkit.scorers.base import plain

LETTERS = "ABCD"

_OFFICIAL = (
    re.compile(r"The correct answer is \(([A-D])\)"),
    re.compile(r"The correct answer is ([A-D])"),
)

_CUE = re.compile(
    r"(?:answer(?:\s+choice)?|(?:my|the|correct|right|best|final)\s+(?:choice|option)|答案)"
    r"\s*(?:is|:|=|是|为)\s*:?\s*(?:the\s+)?(?:option|choice|选项|选)?\s*",
    re.IGNORECASE,
)
_OPENING, _CLOSING = r"[\"'“‘\[({$\s]*", r"[\"'”’\])}$]*"
# A capital standing alone, or a small letter alone in brackets.
_ALONE = r"(?:(?P<letter>[A-D])(?![\w'’])|(?<=[(\[{])(?P<small>[a-d])(?=[)\]}]))"
_LETTER = re.compile(_OPENING + _ALONE + _CLOSING, re.ASCII)
# "option B is the answer"; "(B) is correct" alone is said of single options on the way to it.
_SUBJECT = re.compile(
    r"(?:\b(?:option|choice|answer)\s+|(?=[(\[]))"
    + _OPENING
    + _ALONE
    + _CLOSING
    + r"\s+is\s+(?:therefore\s+|thus\s+)?(?:the|my)\s+(?:(?:most|only|single)\s+)?"
    r"(?:(?:correct|right|best|final|accurate|appropriate|suitable)\s+)?(?:answer|choice|option)\b",
    re.ASCII | re.IGNORECASE,
)
_BOXED = re.compile(r"\\boxed\{\s*(?:\\(?:text|mathrm|mathbf)\{\s*)?\(?([A-Da-d])\)?\s*\}")
_MORE = re.compile(r"\s*(?:,|/|or|and|或|和)\s*(?:\(?[A-D](?![\w'’])\)?|[(\[][a-d][)\]])", re.ASCII)
_ARTICLE = re.compile(r"\s+(?!because\b|since\b|as\b|for\b|due\b|which\b|that\b)[a-z]")


def official_letter(response: str) -> str | None:
    """LongBench v2's extraction: the first fixed phrase with a letter, asterisks removed."""
    text = response.replace("*", "")
    for pattern in _OFFICIAL:
        if match := pattern.search(text):
            return match[1]
    return None


def strict_letter(response: str) -> str | None:
    """The letter that an answer settles on: its last statement of an answer, in any wording.

    Reasoning blocks and markup do not count, a word that begins with the letter is not the letter
    (``Because``), and naming two letters at once is no answer. Without any statement, a response
    that begins with a letter standing alone is that letter.
    """
    text = unicodedata.normalize("NFKC", without_reasoning(response))
    text = re.sub(r"[*`]|__", "", text)
    stated = [
        *_cued(text),
        *((m.start(), _letter(m)) for m in _SUBJECT.finditer(text)),
        *((m.start(), m[1].upper()) for m in _BOXED.finditer(text)),
    ]
    if stated:
        return max(stated, key=lambda pair: pair[0])[1]
    match = _LETTER.match(text)
    return _single(text, match) if match and not _is_article(text, match) else None


def _cued(text: str) -> list[tuple[int, str | None]]:
    """Position and letter of each "answer is ..." that a letter follows."""
    cued: list[tuple[int, str | None]] = []
    for cue in _CUE.finditer(text):
        match = _LETTER.match(text, cue.end())
        if match and not _is_article(text, match):
            cued.append((match.start(), _single(text, match)))
    return cued


def _letter(match: re.Match[str]) -> str:
    return (match["letter"] or match["small"]).upper()


def _single(text: str, match: re.Match[str]) -> str | None:
    """The letter, unless another one is named beside it."""
    return None if _MORE.match(text, match.end()) else _letter(match)


def _is_article(text: str, match: re.Match[str]) -> bool:
    return match[0].strip() == "A" and _ARTICLE.match(text, match.end("letter")) is not None


def official_choice(prediction: str, reference: str) -> float:
    """1 if the extracted letter is the gold one."""
    return float(official_letter(prediction) == reference)


def strict_choice(prediction: str, reference: str) -> float:
    """The same with the strict extraction."""
    return float(strict_letter(prediction) == reference)


def _flags(prediction: str, mode: str) -> tuple[str, ...]:
    letter = strict_letter if mode == "strict" else official_letter
    return ("no_letter",) if letter(prediction) is None else ()


CHOICE = plain(
    lambda answer, references: max(official_choice(answer, r) for r in references),
    lambda answer, references: max(strict_choice(answer, r) for r in references),
    hub="accuracy",
    chance=1 / len(LETTERS),
    flags=_flags,
)
