"""Token F1 of short answers, English and Chinese."""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache

from evalkit.scorers.base import best
from evalkit.scorers.longbench import longbench
from evalkit.scorers.segment import words

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_INSIDE_NUMBER = re.compile(r"(?<=\d)[.,](?=\d)")
_NO_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))

# The official list of Chinese punctuation. It lacks, among others, 《 〈 〉 and the wide full stop.
_ZH_RANGES = (
    (0xFF01, 0xFF0D),
    (0xFF0F, 0xFF0F),
    (0xFF1A, 0xFF20),
    (0xFF3B, 0xFF40),
    (0xFF5B, 0xFF64),
    (0x3001, 0x3003),
    (0x300B, 0x3011),
    (0x3014, 0x301F),
    (0x3030, 0x3030),
    (0x303E, 0x303F),
    (0x2013, 0x2014),
    (0x2018, 0x2019),
    (0x201B, 0x201F),
    (0x2026, 0x2027),
    (0xFE4F, 0xFE4F),
)
_NO_ZH_PUNCTUATION = _NO_PUNCTUATION | {
    code: None for first, last in _ZH_RANGES for code in range(first, last + 1)
}


def f1(prediction: Sequence[str], gold: Sequence[str]) -> float:
    """F1 of two bags of tokens; 0 without a common one."""
    common = Counter(prediction) & Counter(gold)
    same = sum(common.values())
    if same == 0:
        return 0.0
    precision, recall = same / len(prediction), same / len(gold)
    return 2 * precision * recall / (precision + recall)


# -- official -----------------------------------------------------------------------------------


def qa_f1(answer: list[str], gold: str) -> float:
    """LongBench's F1 of English answers, of an answer that is `normalized`."""
    return f1(answer, normalized(gold))


def normalized(text: str) -> list[str]:
    """Lower case, no ASCII punctuation (``twenty-one`` becomes one token), no articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def qa_f1_zh(answer: list[str], gold: str) -> float:
    """LongBench's F1 of Chinese answers, of an answer that is `normalized_zh`."""
    return f1(answer, normalized_zh(gold))


def normalized_zh(text: str) -> list[str]:
    """jieba's tokens in lower case without punctuation and white space; empty ones dropped.

    Punctuation is removed inside the tokens, as officially.
    """
    return [token for token in map(characters_zh, words(text)) if token]


def characters_zh(text: str) -> str:
    """Lower case without punctuation and white space."""
    return "".join(text.lower().translate(_NO_ZH_PUNCTUATION).split())


def substring_match(prediction: str, gold: str) -> float:
    """1 if the gold occurs in the answer, both as `normalized` (HELMET's substring match).

    There are no word boundaries: ``art`` is found in ``party``.
    """
    return float(" ".join(normalized(gold)) in " ".join(normalized(prediction)))


# -- strict -------------------------------------------------------------------------------------


def strict_qa_f1(answer: list[str], gold: str) -> float:
    """F1 after Unicode normalisation, of an answer's `strict_tokens`."""
    return f1(answer, strict_tokens(gold))


def strict_tokens(text: str) -> list[str]:
    """Compatibility forms folded, every kind of punctuation gone, articles dropped.

    Dashes and slashes become spaces, so that ``twenty-one`` is ``twenty one``; other punctuation
    is deleted, so that ``U.S.`` is ``us``. A text of articles only keeps them.
    """
    plain = fold(text).translate(punctuation_table())
    return _ARTICLES.sub(" ", plain).split() or plain.split()


def strict_substring_match(prediction: str, gold: str) -> float:
    """1 if the gold's tokens occur in the answer's in a row; see `strict_tokens`."""
    answer, wanted = strict_tokens(prediction), strict_tokens(gold)
    return float(bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(answer)} ")


def strict_qa_f1_zh(answer: list[str], gold: str) -> float:
    """F1 of jieba's tokens of texts whose punctuation was removed before."""
    return f1(answer, strict_tokens_zh(gold))


def strict_tokens_zh(text: str) -> list[str]:
    """Compatibility forms folded and punctuation made white space, then jieba's tokens.

    A point or comma inside a number is deleted, so that 4.6 is not two numbers.
    """
    plain = _INSIDE_NUMBER.sub("", fold(text)).translate(dict.fromkeys(punctuation_table(), " "))
    return [token for token in words(" ".join(plain.split())) if not token.isspace()]


def fold(text: str) -> str:
    """NFKC and case folding: full-width letters and digits become ASCII."""
    return unicodedata.normalize("NFKC", text).casefold()


@cache
def punctuation_table() -> dict[int, str | None]:
    """Every punctuation character of Unicode: dashes and slashes to a space, others deleted.

    ASCII symbols such as ``$`` and ``+`` are deleted too, as the official metric does.
    """
    table: dict[int, str | None] = dict(_NO_PUNCTUATION)
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category.startswith("P"):
            table[code] = " " if category == "Pd" else None
    return table | {ord(c): " " for c in "/\\-"}


QA_F1 = longbench(best(qa_f1, normalized), best(strict_qa_f1, strict_tokens), hub="f1")
QA_F1_ZH = longbench(
    best(qa_f1_zh, normalized_zh), best(strict_qa_f1_zh, strict_tokens_zh), hub="f1"
)
SUBSTRING_MATCH = longbench(best(substring_match), best(strict_substring_match))
