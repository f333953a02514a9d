"""Lines that stand in a file twice, where nothing but the file itself can tell.

A script that appends to its file leaves such traces: the first lines of a run that was cut short,
before or behind those of the run that was finished; a restart that began some lines too early; or
single lines twice. Equal lines alone prove nothing: LongBench itself asks some questions twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from evalkit.importers.common.predictions import Line, Prediction
from evalkit.importers.common.questions import TELLING, Question, telling


def without_cut_short_runs(lines: list[Line], expected: int | None) -> list[Line]:
    """The lines of the longest run, where the others are beginnings of the same run."""
    if expected is not None and len(lines) > expected:
        whole = _whole_run(lines, expected)
        if whole is not None:
            return whole
    while (start := _restart(lines)) is not None:
        before, after = lines[:start], lines[start:]
        lines = after if len(after) >= len(before) else before
    return lines


def without_repeats(lines: list[Line], expected: int | None) -> list[Line]:
    """Each question once: runs cut short, restarts that began too early, single lines twice."""
    if len(lines) == expected:
        return _without_early_restarts(lines)
    lines = _without_early_restarts(without_cut_short_runs(lines, expected))
    distinct = _distinct(lines, lambda line: line.digest)
    if expected is None or not len(distinct) < expected < len(lines):
        if expected is not None and len(distinct) > expected:
            asked = _distinct(lines, Question.of)
            return asked if len(asked) == expected else distinct
        return distinct
    return lines  # too many, and too few without: some equal lines are different questions


def _distinct(lines: Sequence[Line], same: Callable[[Prediction], Hashable]) -> list[Line]:
    """The first of the lines that are the same by some measure; unusable ones all stay."""
    seen: set[Hashable] = set()
    distinct: list[Line] = []
    for line in lines:
        if isinstance(line, Prediction):
            if same(line) in seen:
                continue
            seen.add(same(line))
        distinct.append(line)
    return distinct


def _without_early_restarts(lines: list[Line]) -> list[Line]:
    """Drop a stretch that repeats the lines right before it, question by question.

    Only where content tells the place of nearly every line; the data themselves repeat no two
    questions in a row.
    """
    questions = [_question(line) or i for i, line in enumerate(lines)]
    counts = Counter(questions)
    by_length = all(isinstance(q, int) or q.length is not None for q in counts)
    once, twice = (sum(n == k for n in counts.values()) for k in (1, 2))
    if not by_length or once < len(counts) / 2 or once + twice < TELLING * len(counts):
        return lines
    first = {q: i for i, q in reversed(list(enumerate(questions)))}
    kept, at = [], 0
    while at < len(lines):
        start = first[questions[at]]
        stretch = at - start
        if stretch and questions[start:at] == questions[at : at + stretch]:
            at += stretch
        else:
            kept.append(lines[at])
            at += 1
    return kept


def _whole_run(lines: list[Line], expected: int) -> list[Line] | None:
    """The last or first so many lines, if all others are beginnings of the same run."""
    for whole, rest in (
        (lines[-expected:], lines[:-expected]),
        (lines[:expected], lines[expected:]),
    ):
        questions, at = [_question(line) for line in whole], 0
        for question in map(_question, rest):
            if question is None:
                break
            if at == expected or question != questions[at]:
                at = 0
            if question != questions[at]:
                break
            at += 1
        else:
            return whole
    return None


def _restart(lines: Sequence[Line]) -> int | None:
    """Where the questions begin again: the shorter part has those of the longer one's start."""
    questions = [_question(line) for line in lines]
    if not questions or questions[0] is None:
        return None
    for start in range(2, len(questions) - 1):
        if questions[start] != questions[0]:
            continue
        length = min(start, len(questions) - start)
        again = questions[start : start + length]
        longer = questions[start:] if length == start else questions[:start]
        if again == questions[:length] and telling(again, longer):
            return start
    return None


def _question(line: Line) -> Question | None:
    return Question.of(line) if isinstance(line, Prediction) else None
