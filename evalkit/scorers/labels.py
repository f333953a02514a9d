"""Class names and numbers in an answer: classification, retrieval, count."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import cast

from evalkit.core.errors import EvalkitError
from evalkit.scorers.base import Options, best
from evalkit.scorers.longbench import longbench

_SEQUENCES = (list, tuple)
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PARAGRAPH = {"en": re.compile(r"Paragraph (\d+)"), "zh": re.compile(r"段落(\d+)")}
_NAMED = {
    "en": re.compile(r"paragraph\s*(\d+)", re.IGNORECASE),
    "zh": re.compile(r"段落\s*(\d+)|第\s*(\d+|[零一二两三四五六七八九十百]+)\s*段"),
}
_ZH_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2}

# -- classification -------------------------------------------------------------------------------


def classification(prediction: str, references: tuple[str, ...], options: Options) -> float:
    """LongBench's metric: 1 / (class names found in the answer) if the gold is among them.

    Names that are part of the gold are taken out while the list is walked, so that one of two
    neighbours survives; a longer name does not take out the gold inside it.
    """
    classes = options.meta.get("all_classes")
    if type(classes) is not list or not classes:
        classes = _classes(options)
    try:
        named = [name for name in classes if name in prediction]
    except TypeError:
        raise _not_classes(classes) from None
    if len(named) == 1:
        return 1.0 if named[0] in references else 0.0
    right = (1.0 / _left(named, gold) for gold in references if gold in named)
    return max(right, default=0.0)


def _left(named: list[str], gold: str) -> int:
    """How many names are left when those are taken out that are part of the gold."""
    names = list(named)
    for name in names:
        if name in gold and name != gold:
            # Removes its first occurrence; the walk then steps over the next name, as officially.
            names.remove(name)
    return len(names)


def strict_classification(prediction: str, references: tuple[str, ...], options: Options) -> float:
    """1 / (distinct names found) if a gold is among them: longest names first, whole words."""
    classes = _classes(options)
    if not all(isinstance(name, str) for name in classes):
        raise _not_classes(classes)
    pattern = _pattern(tuple(classes))
    named = {match.casefold() for match in pattern.findall(prediction)}
    right = any(gold.casefold() in named for gold in references)
    return 1.0 / len(named) if right else 0.0


@lru_cache(maxsize=16)
def _pattern(classes: tuple[str, ...]) -> re.Pattern[str]:
    names = sorted(filter(None, classes), key=len, reverse=True)
    body = "|".join(
        rf"{_edge(name[0], '(?<!{})')}{re.escape(name)}{_edge(name[-1], '(?!{})')}"
        for name in names
    )
    return re.compile(body or r"(?!)", re.IGNORECASE)


def _edge(character: str, look: str) -> str:
    """ASCII words end at their edge; Chinese names may touch other characters."""
    return look.format("[0-9A-Za-z]") if re.match(r"[0-9A-Za-z]", character) else ""


def _classes(options: Options) -> Sequence[str]:
    """The classes, not empty."""
    classes = options.meta.get("all_classes")
    if not classes or not isinstance(classes, _SEQUENCES):
        raise _not_classes(classes)
    return cast(Sequence[str], classes)


def _not_classes(classes: object) -> EvalkitError:
    return EvalkitError(
        "classification: all_classes must be a list of class names,"
        f" found {'null' if classes is None else type(classes).__name__}"
    )


# -- numbers --------------------------------------------------------------------------------------


def count(prediction: str, gold: str) -> float:
    """LongBench's metric: the share of all numbers in the answer that are the gold's digits."""
    return _share(prediction, gold)


def retrieval(language: str) -> Callable[[str, str], float]:
    """LongBench's metric: the share of all numbers that are the number of the gold paragraph."""
    return lambda prediction, gold: _share(prediction, _paragraph(gold, language))


def _share(prediction: str, gold: str) -> float:
    numbers = _DIGITS.findall(prediction)
    return numbers.count(gold) / len(numbers) if numbers else 0.0


def _paragraph(gold: str, language: str) -> str:
    match = _PARAGRAPH[language].search(gold)
    if match is None:
        raise EvalkitError(
            f"retrieval: the gold answer {gold[:40]!r} names no paragraph"
            f" ({_PARAGRAPH[language].pattern})"
        )
    return match[1]


def strict_count(prediction: str, gold: str) -> float:
    """1 / (distinct numbers in the answer) if the gold is among them, compared as numbers."""
    if not _NUMBER.fullmatch(_folded(gold).strip()):
        raise EvalkitError(f"count: the gold answer {gold[:40]!r} is no number")
    right = _number(_folded(gold).strip())
    return _among(right, map(_number, _NUMBER.findall(_folded(prediction))))


def strict_retrieval(language: str) -> Callable[[str, str], float]:
    """1 / (distinct paragraphs named in the answer) if the gold is among them.

    Where no paragraph is named (``Paragraph 4``, ``段落4``, ``第四段``), all numbers are.
    """

    def scorer(prediction: str, gold: str) -> float:
        text = _folded(prediction)
        named = [match[match.lastindex or 0] for match in _NAMED[language].finditer(text)]
        right = _number(_paragraph(gold, language))
        return _among(right, map(_number, named or _DIGITS.findall(text)))

    return scorer


def _among(gold: str, candidates: Iterable[str]) -> float:
    distinct = set(candidates)
    return 1.0 / len(distinct) if gold in distinct else 0.0


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _number(text: str) -> str:
    """A number without leading zeros and empty decimals; numerals of any script as ASCII digits."""
    if any(c in _ZH_DIGITS or c in "十百" for c in text):
        return str(_chinese(text))
    ascii_text = "".join(c if c == "." else str(unicodedata.digit(c)) for c in text)
    whole, _, decimals = ascii_text.partition(".")
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{decimals}" if decimals else "")


def _chinese(text: str) -> int:
    """A Chinese numeral below 1000: 十二, 二十, 一百零五."""
    total, digit = 0, 0
    for character in text:
        if character in "十百":
            total += (digit or 1) * (10 if character == "十" else 100)
            digit = 0
        else:
            digit = _ZH_DIGITS[character]
    return total + digit


CLASSIFICATION = longbench(classification, strict_classification, hub="accuracy")
RETRIEVAL = longbench(best(retrieval("en")), best(strict_retrieval("en")))
RETRIEVAL_ZH = longbench(best(retrieval("zh")), best(strict_retrieval("zh")))
COUNT = longbench(best(count), best(strict_count))
