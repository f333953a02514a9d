"""Similarity of one line of code, with the edit distance by name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher

from evalkit.core.errors import EvalkitError
from evalkit.scorers.base import Options
from evalkit.scorers.longbench import longbench

LONGEST = 2000
"""Characters of a line that strict mode compares: difflib needs quadratic time and more."""

_NOT_CODE = ("```", "#", "//", "/*", "*", "-- ")
"""How fences begin, and lines that are comments only."""


def code_sim(prediction: str, references: tuple[str, ...], options: Options) -> float:
    """LongBench's metric: the first line without a backtick, ``#`` or ``//``, whole percents."""
    ratio = _backend(options.edit_distance, junk=True)
    line = first_clean_line(prediction)
    return max((_percent(line, gold, ratio) / 100 for gold in references), default=0.0)


def first_clean_line(prediction: str) -> str:
    """The first line that has none of the marks of comments and fences; empty if all have."""
    for line in prediction.lstrip("\n").split("\n"):
        if "`" not in line and "#" not in line and "//" not in line:
            return line
    return ""


def strict_code_sim(prediction: str, references: tuple[str, ...], options: Options) -> float:
    """The first line of code against the gold line, both stripped, as a fraction.

    A line with a comment behind code stays, indentation does not count, nothing is rounded; of
    longer lines the first `LONGEST` characters count.
    """
    ratio = _backend(options.edit_distance, junk=False)
    line = first_code_line(prediction)[:LONGEST]
    golds = (gold.strip()[:LONGEST] for gold in references)
    return max((_fraction(line, gold, ratio) for gold in golds), default=0.0)


def first_code_line(prediction: str) -> str:
    """The first line that is not blank, a fence or a comment, stripped; empty without one."""
    lines = (line.strip() for line in prediction.split("\n"))
    return next((line for line in lines if line and not line.startswith(_NOT_CODE)), "")


Ratio = Callable[[str, str], float]


def _percent(line: str, gold: str, ratio: Ratio) -> int:
    """The integer percents of the package ``fuzzywuzzy``: equal texts 100, an empty one 0."""
    if line == gold:
        return 100
    # At most 2 * shorter / total: no need to look at a line that cannot reach half a percent.
    if 400 * min(len(line), len(gold)) <= len(line) + len(gold):
        return 0
    return round(100 * ratio(line, gold))


def _fraction(line: str, gold: str, ratio: Ratio) -> float:
    if line == gold:
        return 1.0
    return ratio(line, gold) if line and gold else 0.0


def _backend(name: str, *, junk: bool) -> Ratio:
    """The similarity ``2 * M / T`` of two texts of `T` characters together.

    ``difflib`` counts in M the characters of matching blocks (it is not symmetric, and with
    `junk` leaves out frequent characters of a gold of 200 and more); ``levenshtein`` the longest
    common subsequence.
    """
    if name == "levenshtein":
        return _levenshtein()
    return lambda line, gold: _matching(line, gold, junk) / (len(line) + len(gold))


def _matching(line: str, gold: str, junk: bool) -> int:
    """Twice the characters in matching blocks, without the blocks in order that difflib makes."""
    longest = SequenceMatcher(None, line, gold, autojunk=junk).find_longest_match
    todo, characters = [(0, len(line), 0, len(gold))], 0
    while todo:
        a, a_end, b, b_end = todo.pop()
        i, j, size = longest(a, a_end, b, b_end)
        if size:
            characters += size
            if a < i and b < j:
                todo.append((a, i, b, j))
            if i + size < a_end and j + size < b_end:
                todo.append((i + size, a_end, j + size, b_end))
    return 2 * characters


def _levenshtein() -> Ratio:
    try:
        from rapidfuzz.distance import Indel
    except ImportError:
        raise EvalkitError(
            "edit_distance = levenshtein needs the package rapidfuzz: pip install rapidfuzz"
        ) from None
    return lambda line, gold: float(Indel.normalized_similarity(line, gold))


CODE_SIM = longbench(code_sim, strict_code_sim)
