"""Align lines with samples: repeated lines are dropped, the others get their sample ids.

A script that appends to its file leaves two traces: the first lines of a run that was cut short,
before those of the run that was finished, or single lines twice. Equal lines alone prove nothing:
LongBench itself asks some questions twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from evalkit.core.errors import EvalkitError
from evalkit.importers.common.predictions import (
    Line,
    Prediction,
    PredictionSet,
    UnusableLine,
)


@dataclass(frozen=True, slots=True)
class Aligned:
    """The samples of one task.

    Attributes:
        predictions: by sample id, in order.
        repeated: lines that were dropped.
        lines: lines there were, blank ones left out.
    """

    predictions: dict[str, Prediction]
    repeated: tuple[str, ...]
    lines: int


def align(
    task: str,
    predictions: PredictionSet,
    known: Mapping[str, Sequence[str]],
    aliases: Mapping[str, str],
) -> Aligned:
    """Give every prediction of a task its sample id.

    Args:
        task: the cell.
        predictions: with its lines; takes note of answers that contradict each other.
        known: references of the samples that the run already has, by sample id.
        aliases: their sample ids by the benchmark's own id, where they have one.

    Raises:
        EvalkitError: there are more lines than samples, and it cannot be told which are repeated.
    """
    lines = predictions.lines[task]
    usable = [line for line in lines if isinstance(line, Prediction)]
    if any(line.key is not None for line in usable) or (
        aliases and all(line.alias in aliases for line in usable)
    ):
        return _by_id(
            [(aliases.get(p.alias or "", f"{task}/{p.key}"), p) for p in usable],
            len(lines),
            predictions,
        )
    distinct = list(lines)
    expected = predictions.expected.get(task)
    if len(lines) != expected and not _agrees(task, lines, known):
        distinct = _without_repeats(lines, expected)
    if expected is not None and len(distinct) > expected:
        raise EvalkitError(
            f"{task}: {len(distinct)} lines, but the task has {expected} samples, and it cannot be"
            f" told which are repeated (first line: {distinct[0].where})"
        )
    left = {id(line) for line in distinct}
    dropped = tuple(str(line.where) for line in lines if id(line) not in left)
    by_id = {f"{task}/{i}": line for i, line in enumerate(distinct) if isinstance(line, Prediction)}
    return Aligned(by_id, dropped, len(lines))


def _by_id(
    identified: Sequence[tuple[str, Prediction]], lines: int, predictions: PredictionSet
) -> Aligned:
    """The first prediction of every sample id."""
    by_id: dict[str, Prediction] = {}
    repeated = []
    for sample_id, line in identified:
        first = by_id.setdefault(sample_id, line)
        if first is line:
            continue
        repeated.append(str(line.where))
        if (first.text, first.references) != (line.text, line.references):
            name = line.key or line.alias
            text = f"{name} was answered otherwise in {first.where}, which is kept"
            predictions.problem(line.where, "", text)
    return Aligned(by_id, tuple(repeated), lines)


def _agrees(task: str, lines: Sequence[Line], known: Mapping[str, Sequence[str]]) -> bool:
    """Whether the run has exactly these samples, line by line."""
    return len(known) == len(lines) and all(
        isinstance(line, UnusableLine) or tuple(known.get(f"{task}/{i}", ())) == line.references
        for i, line in enumerate(lines)
    )


def _without_repeats(lines: list[Line], expected: int | None) -> list[Line]:
    """Drop runs that were cut short, then, if the number is still wrong, lines that occur twice."""
    if expected is not None and len(lines) > expected:
        whole = _whole_run(lines, expected)
        if whole is not None:
            return whole
    while (start := _restart(lines)) is not None:
        before, after = lines[:start], lines[start:]
        lines = after if len(after) >= len(before) else before
    if len(lines) == expected:
        return lines
    seen: set[str] = set()
    distinct = []
    for line in lines:
        if isinstance(line, Prediction):
            if line.digest in seen:
                continue
            seen.add(line.digest)
        distinct.append(line)
    # too many before and too few after: some equal lines are different questions
    unclear = expected is not None and len(distinct) < expected < len(lines)
    return lines if unclear else distinct


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
        if again == questions[:length] and _telling(again, longer):
            return start
    return None


def _telling(part: Sequence[Hashable | None], whole: Sequence[Hashable | None]) -> bool:
    """Whether most questions of a part occur once in the whole, so that they tell the place."""
    counts = Counter(whole)
    return None not in part and sum(counts[q] == 1 for q in part) >= 0.9 * len(part)


def _question(line: Line) -> Hashable | None:
    """What can be told of a question: its gold and its meta data."""
    if isinstance(line, UnusableLine):
        return None
    return line.references, tuple(sorted((k, str(v)) for k, v in line.meta.items()))
