"""The letter of a multiple-choice answer: LongBench v2's script, evalscope's, and any wording."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from evalkit.core.reasoning import without_reasoning
from evalkit.scorers.base import Metric, Plain, plain

LETTERS = "ABCD"

_OFFICIAL = (
    re.compile(r"The correct answer is \(([A-D])\)"),
    re.compile(r"The correct answer is ([A-D])"),
)

# evalscope: a marker, and the labels behind it in brackets or plain
_MARKER = re.compile(r"ANSWER\s*:\s*\**\s*", re.IGNORECASE)
_LABELS = (
    re.compile(r"[(\[（【]\s*([A-Za-z\d](?:\s*[,，]\s*[A-Za-z\d])*)\s*[)\]）】]"),
    re.compile(r"([A-Za-z\d][A-Za-z\d ,]*)"),
)
_LABEL = re.compile(r"[A-Za-z\d]+")

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
    + _OPENING.removesuffix("*")
    + "{0,16}"  # a wall of brackets would be read again from each of them
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


def line_letter(response: str) -> str | None:
    """evalscope's extraction: behind the last ``ANSWER:`` that a letter follows.

    Without one, the last capital of the response if it is a letter A to D. Several letters behind
    the marker are no answer.
    """
    for marker in reversed(list(_MARKER.finditer(response))):
        for pattern in _LABELS:
            labels = pattern.match(response, marker.end())
            named = "" if labels is None else _labels(labels[1])
            if named:
                return named if named in LETTERS and len(named) == 1 else None
    last = next((c for c in reversed(response) if c.isupper()), "")
    return last if last and last in LETTERS else None


def _labels(text: str) -> str:
    """The beginning of a text up to the first word that is not all letters A to D."""
    end = 0
    for word in _LABEL.finditer(text):
        if not set(word[0]) <= set(LETTERS):
            break
        end = word.end()
    return text[:end]


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


def _metric(extract: Callable[[str], str | None]) -> Metric:
    """Right or wrong by one extraction, or by the strict one; answers without a letter counted."""

    def judged(letter: Callable[[str], str | None]) -> Plain:
        return lambda answer, references: float(letter(answer) in references)

    def flags(prediction: str, mode: str) -> tuple[str, ...]:
        letter = strict_letter if mode == "strict" else extract
        return ("no_letter",) if letter(prediction) is None else ()

    return plain(
        judged(extract),
        judged(strict_letter),
        hub="accuracy",
        chance=1 / len(LETTERS),
        flags=flags,
    )


CHOICE = _metric(official_letter)
CHOICE_LINE = _metric(line_letter)
