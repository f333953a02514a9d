"""RULER's summary numbers: score per length, two weighted averages, effective length."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from evalkit.tasks.ruler.config import NAMES

OFFICIAL_LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)

THRESHOLD = 0.856
"""Llama-2-7B-chat at 4 096 tokens: a length with at least this score is effective."""

_CELL = re.compile(r"(?P<task>.+)@(?P<length>\d+)")


@dataclass(frozen=True, slots=True)
class LengthScore:
    """All tasks at one length.

    Attributes:
        length: in tokens.
        score: plain mean of the tasks that are there, in [0, 1].
        missing: official tasks that are not.
    """

    length: int
    score: float
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The summary of one arm.

    Attributes:
        lengths: scores per length, growing.
        average: plain mean over the lengths.
        weighted_increasing: ``wAvg (inc)``: weights 1, 2, 3 ... from the shortest length on.
        weighted_decreasing: ``wAvg (dec)``: the same weights from the longest length on.
        effective_length: largest length with a score of `THRESHOLD` or more; None if there is
            none.
        notes: what is missing or not official, in sentences; empty for a complete result.
    """

    lengths: tuple[LengthScore, ...]
    average: float
    weighted_increasing: float
    weighted_decreasing: float
    effective_length: int | None
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether the numbers may stand beside official ones: all tasks at the six lengths."""
        return tuple(row.length for row in self.lengths) == OFFICIAL_LENGTHS and not any(
            row.missing for row in self.lengths
        )


def aggregate(scores: Mapping[str, float]) -> Aggregate | None:
    """The summary of one arm's cells; None where there is no RULER cell.

    Args:
        scores: mean score in [0, 1] by cell name (``vt@8192``); other tasks are ignored.
    """
    cells: dict[int, dict[str, float]] = {}
    for name, score in scores.items():
        match = _CELL.fullmatch(name)
        if match and match["task"] in NAMES:
            cells.setdefault(int(match["length"]), {})[match["task"]] = score
    if not cells:
        return None
    rows = tuple(
        LengthScore(
            length,
            sum(by_task.values()) / len(by_task),
            tuple(name for name in NAMES if name not in by_task),
        )
        for length, by_task in sorted(cells.items())
    )
    values = [row.score for row in rows]
    reached = [row.length for row in rows if _reaches(row.score)]
    return Aggregate(
        lengths=rows,
        average=sum(values) / len(values),
        weighted_increasing=weighted(values),
        weighted_decreasing=weighted(values[::-1]),
        effective_length=max(reached, default=None),
        notes=_notes(rows),
    )


def weighted(values: list[float]) -> float:
    """``Σ i·s_i / Σ i`` with i = 1, 2, 3 ...; over six lengths the divisor is 21."""
    return sum(i * s for i, s in enumerate(values, 1)) / (len(values) * (len(values) + 1) / 2)


def _reaches(score: float) -> bool:
    # a mean of thirteen cells that is exactly the threshold may lie a rounding error below it
    return score >= THRESHOLD - 1e-9


def _notes(rows: tuple[LengthScore, ...]) -> tuple[str, ...]:
    notes = []
    for missing, lengths in _by_missing(rows).items():
        at = "every length" if len(lengths) == len(rows) else f"length {_listed(lengths)}"
        left = len(NAMES) - len(missing)
        notes.append(
            f"at {at} the score is the mean of {left} of {len(NAMES)} tasks;"
            f" missing: {', '.join(missing)}"
        )
    measured = tuple(row.length for row in rows)
    absent = [length for length in OFFICIAL_LENGTHS if length not in measured]
    if measured != OFFICIAL_LENGTHS:
        text = f"averages are over the lengths {_listed(measured)}, not the official six"
        notes.append(f"{text}; missing: {_listed(absent)}" if absent else text)
    fallen = [
        row.length
        for row in rows
        if not _reaches(row.score)
        and any(_reaches(longer.score) for longer in rows if longer.length > row.length)
    ]
    if fallen:
        notes.append(f"length {_listed(fallen)} is below the threshold, a longer one is not")
    if _reaches(rows[-1].score):
        notes.append(f"the effective length may be more than {rows[-1].length}: nothing longer ran")
    return tuple(notes)


def _by_missing(rows: tuple[LengthScore, ...]) -> dict[tuple[str, ...], list[int]]:
    lengths: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        if row.missing:
            lengths.setdefault(row.missing, []).append(row.length)
    return lengths


def _listed(lengths: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, lengths))
