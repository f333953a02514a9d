"""Summary-level ROUGE-L: as the package ``rouge`` 1.0.1 computes it, and as ROUGE defines it.

Our own implementation of both; the official package is no longer maintained, recurses once per
word and needs minutes for a long summary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from evalkit.scorers.base import best
from evalkit.scorers.lcs import Columns, matches
from evalkit.scorers.longbench import longbench
from evalkit.scorers.segment import words
from evalkit.scorers.text import fold

_EPSILON = 1e-8
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|[\r\n]+|(?<=[。！？；])")
_WORD = re.compile(r"\w+")

# -- official -----------------------------------------------------------------------------------


def rouge(prediction: str, gold: str) -> float:
    """LongBench's ROUGE-L of English summaries.

    Sentences end at every full stop, words are parted by white space, and a word counts once
    however often it occurs. Texts on which the official package exceeds Python's recursion limit
    (and scores 0 by accident) get the value that it would have computed.
    """
    answer, reference = _sentences(prediction), _sentences(gold)
    if not answer or not reference:
        return 0.0
    n = len({word for sentence in answer for word in sentence})
    m = len({word for sentence in reference for word in sentence})
    common = len(_union(reference, answer))
    precision, recall = common / n, common / m
    return 2.0 * ((precision * recall) / (precision + recall + _EPSILON))


def rouge_zh(prediction: str, gold: str) -> float:
    """The same of Chinese texts, their words by jieba; only the ASCII full stop ends a sentence."""
    return rouge(" ".join(words(prediction)), " ".join(words(gold)))


def _sentences(text: str) -> list[list[str]]:
    """Words of the pieces between full stops; a piece of white space is one empty word."""
    return [piece.split() or [""] for piece in text.split(".") if piece]


def _union(rows: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> set[str]:
    """Words of the longest common subsequences of all pairs of sentences."""
    known = {word for row in rows for word in row}
    # A column word that no row has changes nothing; sentences that are then equal count once.
    kept = dict.fromkeys(tuple(word for word in other if word in known) for other in others)
    columns = Columns(kept)
    union: set[str] = set()
    for row in dict.fromkeys(map(tuple, rows)):
        short = _without_runs(row, columns)
        union.update(
            word
            for word, hit in zip(short, matches(short, columns), strict=True)
            if hit and word is not None
        )
    return union


def _without_runs(row: Sequence[str], columns: Columns) -> list[str | None]:
    """Words that no column has become None, and a run of them one: they act as one."""
    short: list[str | None] = []
    for word in row:
        if word in columns.bits:
            short.append(word)
        elif not short or short[-1] is not None:
            short.append(None)
    return short


# -- strict -------------------------------------------------------------------------------------


def strict_rouge(prediction: str, gold: str) -> float:
    """ROUGE-Lsum (Lin 2004) of case-folded words without punctuation, exact F1.

    For every reference sentence the union of its longest common subsequences with all sentences
    of the answer; a word counts as often as it occurs, on both sides.
    """
    return _rouge_lsum(
        [_WORD.findall(part) for part in _SENTENCE_END.split(fold(prediction))],
        [_WORD.findall(part) for part in _SENTENCE_END.split(fold(gold))],
    )


def strict_rouge_zh(prediction: str, gold: str) -> float:
    """The same with jieba's words; Chinese marks end a sentence too."""
    return _rouge_lsum(_sentences_zh(prediction), _sentences_zh(gold))


def _sentences_zh(text: str) -> list[list[str]]:
    # NFKC turns the full-width marks ！ and ？ into ASCII ones: split before folding.
    parts = re.split(r"(?<=[.!?])\s+|[\r\n]+|(?<=[。！？；])", text)
    return [[word for word in words(fold(part)) if _WORD.search(word)] for part in parts]


def _rouge_lsum(answer: list[list[str]], reference: list[list[str]]) -> float:
    answer = [sentence for sentence in answer if sentence]
    reference = [sentence for sentence in reference if sentence]
    n = sum(map(len, answer))
    m = sum(map(len, reference))
    columns = Columns(reference)
    union = 0
    for row in dict.fromkeys(map(tuple, answer)):
        for hit in matches(row, columns):
            union |= hit
    hits = _clipped(columns, union, Counter(word for s in answer for word in s))
    if hits == 0:
        return 0.0
    precision, recall = hits / n, hits / m
    return 2 * precision * recall / (precision + recall)


def _clipped(columns: Columns, union: int, available: Counter[str]) -> int:
    """Matched reference words, each at most as often as the answer has it."""
    return sum(
        min((union & columns.masks(word)[1]).bit_count(), available[word])
        for word in columns.bits
        if word in available
    )


ROUGE = longbench(best(rouge), best(strict_rouge), hub="rouge")
ROUGE_ZH = longbench(best(rouge_zh), best(strict_rouge_zh), hub="rouge")
