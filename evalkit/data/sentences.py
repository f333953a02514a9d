"""Sentences of English prose by rule, without a model and without downloads."""

from __future__ import annotations

import re

_END = re.compile(r"[.!?]+[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[^\sa-z\"'“‘(\[])")
_LAST_WORD = re.compile(r"(\S+)$")
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        "mr mrs ms dr prof st jr sr vs etc e.g i.e cf fig no vol pp inc ltd co corp dept u.s u.k",
    )
)


def split(text: str) -> list[str]:
    """Sentences in order, without the white space between them.

    A sentence ends at ``.``, ``!`` or ``?`` (with closing quotes and brackets) before white space
    and anything but a lower-case letter, unless the word before the full stop is a common
    abbreviation or a single capital.
    """
    text = text.strip()
    sentences, start = [], 0
    for match in _END.finditer(text):
        if _is_abbreviation(text[start : match.start()], match.group()):
            continue
        sentences.append(text[start : match.end()].rstrip())
        start = match.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _is_abbreviation(before: str, mark: str) -> bool:
    word = _LAST_WORD.search(before[-20:])
    if mark.rstrip() != "." or word is None:
        return False
    last = word.group().lstrip("\"'“‘([")
    return last.lower() in _ABBREVIATIONS or (len(last) == 1 and last.isupper() and last != "I")
