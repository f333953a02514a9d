"""InfiniteBench's scores, task by task, as in its src/compute_scores.py.

Gold is what its files hold: of a multiple choice the text of the option and its letter, of a list
its numbers in order. Each strict form judges what the answer says, not where it says it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from evalkit.core.errors import EvalkitError
from evalkit.core.reasoning import without_reasoning
from evalkit.scorers.base import best, plain
from evalkit.scorers.choice import LETTERS, strict_letter
from evalkit.scorers.labels import strict_count
from evalkit.scorers.longbench import longbench
from evalkit.scorers.match import needle_exact
from evalkit.scorers.text import characters_zh, f1

_DIGITS = re.compile(r"[0-9]+")
_VALUE = re.compile(r"\d+\.\d+|\d+")
_GOLD = re.compile(r"-?[0-9]{1,300}(?:\.[0-9]{1,300})?")
_SIGNED = re.compile(r"-?[0-9]+")
_BETWEEN = str.maketrans(dict.fromkeys("\n:\"'.,?!{}", " "))
_OPTION_BETWEEN = str.maketrans(dict.fromkeys("\n\"'.,?!{}", " "))
_CODE_BETWEEN = str.maketrans(dict.fromkeys("\n`'\"-*", " "))
_RUN_BETWEEN = str.maketrans(dict.fromkeys("\n.`'\":", " "))
_OPTION_CUES = ("answer is:", "answer:", "answer is", "option is")
_CODE_CUES = ("answer is:", "is:", "answer:", "correct option is:")

# -- retrieval ------------------------------------------------------------------------------------


def first_number(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the first digits of the answer are the gold's (``passkey``, ``number_string``)."""
    first = _DIGITS.search(prediction)
    return float(first is not None and first[0] in references)


def strict_first_number(prediction: str, references: tuple[str, ...]) -> float:
    """1 / (distinct numbers in the answer with as many digits as the gold) if it is among them.

    "The 5-digit key is 71432" is right, and a list of candidates is not.
    """
    sizes = {len(reference) for reference in references}
    named = {number for number in _DIGITS.findall(prediction) if len(number) in sizes}
    return 1.0 / len(named) if named.intersection(references) else 0.0


def key_value(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the gold is a word of the answer between spaces and punctuation (``kv_retrieval``)."""
    words = prediction.translate(_BETWEEN).split()
    return float(any(reference in words for reference in references))


def speaker(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the first name of the gold is a word of the upper-case answer (``longdialogue_qa``)."""
    words = prediction.translate(_BETWEEN).upper().split()
    return float(references[0] in words)


def strict_speaker(prediction: str, references: tuple[str, ...]) -> float:
    """1 if some name of the gold stands alone in the answer, in any case."""
    return float(needle_exact(without_reasoning(prediction), references) > 0)


# -- books ----------------------------------------------------------------------------------------


def char_f1_zh(answer: str, gold: str) -> float:
    """F1 of the characters without punctuation and white space (``longbook_qa_chn``)."""
    return f1(answer, characters_zh(gold))


def option(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the chosen option is the gold's text or letter (``longbook_choice_eng``).

    Chosen is the first character if it is a letter A to D, else what follows the first cue in the
    answer, else the first word that is part of ``ABCD``.
    """
    text = prediction.strip()
    if not text:
        return 0.0
    if text[0] in LETTERS:
        return float(text[0] in references)
    if text in references:
        return 1.0
    text = _one_spaced(text.translate(_OPTION_BETWEEN))
    after = _after_cue(text, _OPTION_CUES)
    if after is not None:
        return float(after.startswith(references) if after else False)
    word = next((word for word in text.split() if word in LETTERS), "")
    return float(word in references)


def strict_option(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the answer settles on the gold's letter or, naming no letter, holds the gold's text."""
    letter = strict_letter(prediction)
    if letter is not None:
        return float(letter in references)
    texts = tuple(gold for gold in references if gold not in LETTERS)
    return strict_speaker(prediction, texts) if texts else 0.0


# -- code and numbers -----------------------------------------------------------------------------


def code_option(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the answer begins with the letter, or a cue is followed by letter or name.

    (``code_debug``; the gold is the function's name and the letter.)
    """
    text, letter = prediction.strip(), references[-1]
    if text[:2] in (f"{letter}.", f"{letter}:"):
        return 1.0
    text = text.translate(_CODE_BETWEEN).replace("Option", " ").replace("option", " ")
    after = _after_cue(_one_spaced(text), _CODE_CUES)
    return float(bool(after) and str(after).startswith((letter, references[0])))


def last_number(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the last word of the answer is the gold's whole number (``code_run``)."""
    gold, words = _gold_number("last_number", references[0]), prediction.translate(_RUN_BETWEEN)
    return float(_number(words.split()[-1:]) == gold)


def strict_last_number(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the last whole number of the answer, wherever it stands, is the gold's."""
    numbers = _SIGNED.findall(without_reasoning(prediction))
    return float(_number(numbers[-1:]) == _gold_number("last_number", references[0]))


def first_value(prediction: str, references: tuple[str, ...]) -> float:
    """1 if the first number of the answer equals the gold's (``math_find``).

    Where the gold is whole and the answer is not, the official script stops; that scores 0 here.
    """
    number, gold = _VALUE.search(prediction), _gold_number("first_value", references[0])
    if number is None or ("." in number[0] and "." not in references[0]):
        return 0.0
    return float(float(number[0]) == gold)


def number_list(prediction: str, references: tuple[str, ...]) -> float:
    """Share of the gold's numbers that the answer's begin with, signs left out (``math_calc``)."""
    golds = [_gold_number("number_list", gold) for gold in references]
    pairs = zip(map(float, _DIGITS.findall(prediction)), golds, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) / len(golds)


def _after_cue(text: str, cues: Sequence[str]) -> str | None:
    """What stands one character behind the first of the cues that occurs; None without one."""
    for cue in cues:
        at = text.find(cue)
        if at >= 0:
            return text[at + len(cue) + 1 :]
    return None


def _one_spaced(text: str) -> str:
    return re.sub(" {2,}", " ", text)


def _number(words: list[str]) -> int | None:
    """The one word as a whole number; None where there is none, or it is no number."""
    try:
        return int(words[0]) if words else None
    except ValueError:
        return None


def _gold_number(metric: str, gold: str) -> float:
    if not _GOLD.fullmatch(gold):
        raise EvalkitError(f"{metric}: the gold answer {gold[:40]!r} is no number")
    return float(gold)


FIRST_NUMBER = plain(first_number, strict_first_number)
KEY_VALUE = plain(key_value, lambda answer, golds: float(needle_exact(answer, golds) > 0))
SPEAKER = plain(speaker, strict_speaker)
CHAR_F1_ZH = longbench(*[best(char_f1_zh, characters_zh)] * 2, hub="f1")
OPTION = plain(option, strict_option, chance=1 / len(LETTERS))
CODE_OPTION = plain(code_option, strict_option, chance=1 / len(LETTERS))
LAST_NUMBER = plain(last_number, strict_last_number)
FIRST_VALUE = plain(
    first_value, lambda answer, golds: strict_count(without_reasoning(answer), golds[0])
)
NUMBER_LIST = plain(number_list)
